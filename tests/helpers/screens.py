"""Terminals of a given width, and real rows to print on them."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from rich.console import Console
from run_samples import choice
from samples import ROOT

from gemm_tuner.core.choice import Choice
from gemm_tuner.store import results

# Those of GEMMs: others have no short names of configurations.
TUNED = sorted(set((ROOT / "results" / "tuned").glob("*.yaml")) - set((ROOT / "results" / "tuned").glob("*_moe_*")))
WIDTHS = (60, 80, 100, 120)
read = cache(results.read)  # once for all tests: rows are frozen


class Screen:
    """What is printed on ``console``: a terminal of some columns without colours, or a pipe for a width of 0."""

    def __init__(self, width: int) -> None:
        self._file = io.StringIO()
        piped = {"width": 200, "soft_wrap": True}
        terminal = {"width": width, "force_terminal": True, "color_system": None, "legacy_windows": False}
        # Without the variables of the shell that runs the tests, such as TERM=dumb.
        self.console = Console(file=self._file, _environ={}, **(terminal if width else piped))  # type: ignore[arg-type]

    @property
    def lines(self) -> list[str]:
        plain = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", self._file.getvalue())
        return [line.rstrip() for line in plain.splitlines()]


def choices_of(path: Path, source: str = "measured") -> list[Choice]:
    """The rows of a results file, as rows of this source."""
    found = []
    for row in read(path).rows:
        facts = row.facts
        assert row.config is not None
        found.append(
            replace(
                choice(row.problem, row.config, facts["median_us"], source=source),
                p20_us=facts["p20_us"],
                p80_us=facts["p80_us"],
                num_samples=facts["samples"],
                vendor_us=None if source == "predicted" else facts.get("vendor_us"),
                max_abs_error=facts.get("max_abs_error", math.nan),
                error_over_bound=facts.get("error_over_bound", math.nan),
                runner_up=facts.get("runner_up", ""),
                gap_pct=facts.get("gap_pct"),
                tie=bool(facts.get("tie")),
                roofline_pct=facts.get("roofline_pct", math.nan),
            )
        )
    return found
