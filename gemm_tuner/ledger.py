"""The account of one size: every configuration of the space and where it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from gemm_tuner.prune import Pruned
from gemm_tuner.records import CompileResult, GemmProblem, KernelConfig, Status, Timing

COLUMNS = (
    "status", "rule", "predicted_us", "screen_us", "screen_min_us", "screen_samples", "finals_us", "finals_min_us",
    "finals_samples", "registers", "spills", "shared_bytes", "compile_s", "message",
)  # fmt: skip
TEXT_COLUMNS = ("status", "rule", "message")


@dataclass
class Ledger:
    """The configurations that the rules kept, by name, and what became of each.

    configs:      all rows of the space, as ``space.frame`` made them.
    predicted_us: the model's time of the kept ones, by name; a prediction, never a result.
    """

    problem: GemmProblem
    configs: pd.DataFrame
    pruned: Pruned
    kept: dict[str, KernelConfig]
    predicted_us: dict[str, float]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def record(self, name: str, status: Status, message: str = "", **numbers: Any) -> None:
        """Sets where a kept configuration ended; a later record overrides an earlier one."""
        row = self.rows.setdefault(name, {})
        row.update(numbers, status=status.value, message=message)

    def record_compile(self, name: str, result: CompileResult) -> None:
        self.rows.setdefault(name, {}).update(
            registers=result.registers,
            spills=result.spills,
            shared_bytes=result.shared_bytes,
            compile_s=round(result.seconds, 4),
            binary_hash=result.binary_hash,
        )
        if result.status != Status.OK:
            self.record(name, result.status, result.message)

    def record_timing(self, timing: Timing, stage: str) -> None:
        """Books a timing of stage ``screen`` or ``finals``. One that failed in the finals keeps its screening
        numbers and has the status of its failure."""
        numbers: dict[str, Any] = {}
        if timing.samples_us:
            numbers = {
                f"{stage}_us": round(median(timing.samples_us), 3),
                f"{stage}_min_us": round(min(timing.samples_us), 3),
                f"{stage}_samples": len(timing.samples_us),
            }
        self.record(timing.name, timing.status, timing.message, **numbers)

    def cut(self, names: list[str], rule: str) -> None:
        """Configurations that the search left out; ``rule`` says which search and how many it takes."""
        for name in names:
            self.record(name, Status.PRUNED, rule=rule)

    def named(self, status: Status) -> list[str]:
        """The kept configurations that ended in a status."""
        return [name for name, row in self.rows.items() if row.get("status") == status.value]

    def counts(self) -> dict[str, int]:
        """How many configurations ended in each status; the sum is the space."""
        counted = {Status.PRUNED.value: len(self.configs) - len(self.kept)}
        for name in self.kept:
            status = self.rows.get(name, {}).get("status", "")
            counted[status] = counted.get(status, 0) + 1
        return counted

    def assert_complete(self) -> None:
        """Every configuration ended somewhere, exactly once. A failure is a bug of the tuner."""
        counted = self.counts()
        unaccounted = set(counted) - {status.value for status in Status}
        if unaccounted or sum(counted.values()) != len(self.configs):
            raise AssertionError(f"{self.problem.key}: the statuses do not add up to the space: {counted}")

    def table(self) -> pd.DataFrame:
        """One row a configuration that the rules kept: its fields, name and COLUMNS. The funnel counts the others."""
        table = self.configs.iloc[self.pruned.kept].copy()
        table.insert(0, "name", list(self.kept))
        table = table.reset_index(drop=True)
        known = pd.DataFrame.from_dict(self.rows, orient="index").reindex(columns=list(COLUMNS))
        known = known.astype(dict.fromkeys(TEXT_COLUMNS, object))
        known.index.name = "name"
        table = table.join(known, on="name")
        table["predicted_us"] = table["name"].map(self.predicted_us).round(3)
        return table

    def write(self, folder: Path) -> Path:
        """Writes the table as ``<problem>.csv.gz``; blank cells are what was not measured."""
        path = folder / f"{self.problem.key}.csv.gz"
        partial = path.with_suffix(".partial")
        self.table().to_csv(partial, index=False, compression={"method": "gzip", "compresslevel": 1})
        partial.replace(path)
        return path
