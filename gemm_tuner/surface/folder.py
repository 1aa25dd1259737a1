"""The folder of a run of live functions: its log, its table, and the winner as YAML."""

from __future__ import annotations

import csv
import io
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.surface.records import Row, Tuned
from gemm_tuner.system.documents import dump_yaml, write_text_atomically

LOG, TABLE, RESULTS = "tune.log", "table.csv", "tuned.yaml"


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """path: None writes nothing."""

    path: Path | None

    @classmethod
    def make(cls, output_dir: Path | str | None, name: str) -> SessionFolder:
        """A new folder. Raises EnvironmentFault when it cannot be made."""
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
        """One line of what became of a configuration."""
        time_us = "" if row.us is None else f" {row.us:.6g} us"
        stage = "finals" if row.finalist else "baseline" if row.baseline else "screen"
        self.say(f"{stage} {row.name}: {row.status.value}{time_us} {row.reason}")

    def say(self, text: str) -> None:
        """One line of the log."""
        if self.path is None:
            return
        with (self.path / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {text}".rstrip() + "\n")

    def write(self, tuned: Tuned) -> None:
        """The table as CSV, and the best configuration as YAML."""
        if self.path is None:
            return
        titles = list(dict.fromkeys(title for row in tuned.table for title in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, titles, lineterminator="\n")
        writer.writeheader()
        writer.writerows(tuned.table)
        write_text_atomically(self.path / TABLE, text.getvalue())
        if tuned.best is not None:
            write_text_atomically(self.path / RESULTS, dump_yaml(_document(tuned, tuned.best)))


def _document(tuned: Tuned, best: Row) -> dict[str, Any]:
    return {"name": tuned.name, "config": dict(best.config), "us": best.us}
