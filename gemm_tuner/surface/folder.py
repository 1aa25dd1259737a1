"""The folder of a run of the Python API: its log, its table, and the winner as YAML."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.store.run_folder import PYTHON_SUMMARY, PYTHON_TABLE
from gemm_tuner.surface.records import Row, Tuned
from gemm_tuner.surface.tunables import TunedKernel
from gemm_tuner.system.documents import write_text_atomically

LOG, RESULTS = "tune.log", "tuned.yaml"


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """path: None to write nothing."""

    path: Path | None

    @classmethod
    def make(cls, output_dir: Path | str | None, name: str) -> SessionFolder:
        """Creates a new folder. Raises EnvironmentFault if that fails."""
        if output_dir is None:
            return cls(None)
        label = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:60] or "callables"
        stamp, count = time.strftime("%Y%m%d-%H%M%S"), 0
        while True:
            path = Path(output_dir) / f"{stamp}{f'-{count}' if count else ''}-{label}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                count += 1
            except OSError as error:
                hint = "choose another output_dir, or None"
                raise EnvironmentFault(f"cannot make it: {error.strerror}", where=str(path), hint=hint) from None
            else:
                return cls(path.resolve())

    def log(self, row: Row) -> None:
        """Logs the result of a configuration, one line."""
        time_us = "" if row.us is None else f" {row.us:.6g} us"
        stage = "finals" if row.finalist else "baseline" if row.baseline else "screen"
        self.say(f"{stage} {row.name}: {row.status.value}{time_us} {row.reason}")

    def say(self, text: str) -> None:
        """Logs one line."""
        if self.path is None:
            return
        with (self.path / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {text}".rstrip() + "\n")

    def write(self, tuned: Tuned, seed: int) -> None:
        """Writes the table as CSV, a summary as JSON, and the best configuration as a results file."""
        if self.path is None:
            return
        from gemm_tuner.surface import results_row  # imports scipy, which screening processes do not need

        titles = list(dict.fromkeys(title for row in tuned.table for title in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, titles, lineterminator="\n")
        writer.writeheader()
        writer.writerows(tuned.table)
        write_text_atomically(self.path / PYTHON_TABLE, text.getvalue())
        write_text_atomically(self.path / PYTHON_SUMMARY, json.dumps(_summary(tuned), indent=2, default=str) + "\n")
        if tuned.best is not None:
            results_row.write(self.path / RESULTS, tuned, tuned.best, seed)


def _summary(tuned: Tuned) -> dict[str, Any]:
    """The numbers and times of the stages."""
    return {
        "name": tuned.name,
        "space": sum(not row.baseline for row in tuned.rows),
        "ended_as": dict(Counter(row.status.value for row in tuned.rows if not row.baseline)),
        "best": tuned.best.name if tuned.best else None,
        "best_us": tuned.best.us if tuned.best else None,
        "config": dict(tuned.best.config) if tuned.best else None,
        "is_triton_kernel": isinstance(tuned.kernel, TunedKernel),
        "pre_hook": tuned.kernel.pre_hook if isinstance(tuned.kernel, TunedKernel) else "",
        "ties": sorted(tuned.ties),
        "noise_pct": tuned.noise_pct,
        "method": tuned.method,
        "clock": tuned.clock,
        "stage_seconds": {name: round(seconds, 3) for name, seconds in tuned.stage_seconds.items()},
        "seconds": round(tuned.seconds, 3),
    }
