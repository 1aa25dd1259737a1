"""The combinations of a spec with their results, and which of them get into the finals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

from gemm_tuner.kernels.attempt import Outcome
from gemm_tuner.kernels.program_spec import LAST, MEDIAN, Instance, ProgramSpec

FINALISTS, WITHIN = 5, 0.2


@dataclass
class Row:
    """A combination and its result. outcome: None until it has run. values: of its valid runs in order, in the metric's
    unit. select: of the spec."""

    instance: Instance
    outcome: Outcome | None = None
    values: tuple[float, ...] = ()
    is_finalist: bool = False
    select: str = MEDIAN

    @property
    def value(self) -> float | None:
        """The (low) median or the last: a value that a run really had; ``outcome.reading`` is from that run."""
        if not self.values:
            return None
        return self.values[-1] if self.select == LAST else statistics.median_low(self.values)

    @property
    def status(self) -> str:
        return self.outcome.status.value if self.outcome else "not_run"

    def overlaps(self, other: Row) -> bool:
        return min(self.values) <= max(other.values) and min(other.values) <= max(self.values)


@dataclass
class SpecRun:
    """The result of running a spec. rounds: of finals. reused: number of program runs taken from an earlier start."""

    spec: ProgramSpec
    rows: list[Row]
    rounds: int
    reused: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    folder: Path = field(default_factory=Path)

    @property
    def ranked(self) -> list[Row]:
        """The rows that have a value, best first; finalists before those that were only screened."""
        order = self.spec.metric.order
        with_value = [(row, value) for row in self.rows if (value := row.value) is not None]
        with_value.sort(key=lambda one: (not one[0].is_finalist, order(one[1]), one[0].instance.mesh_idx))
        return [row for row, _ in with_value]

    @property
    def ties(self) -> list[Row]:
        """Finalists whose values overlap with the winner's, so that they cannot be distinguished."""
        finalists = [row for row in self.ranked if row.is_finalist]
        return [row for row in finalists[1:] if row.overlaps(finalists[0])]


def finalists_of(result: SpecRun) -> list[Row]:
    """The FINALISTS best rows that are WITHIN of the best."""
    ranked = result.ranked
    if not ranked:
        return []
    best = ranked[0].value or 0.0
    return [row for row in ranked if abs((row.value or 0.0) - best) <= WITHIN * abs(best)][:FINALISTS]
