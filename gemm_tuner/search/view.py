"""The view of a size that a search gets, and the protocol of searches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from gemm_tuner.core.records import Device, Problem

if TYPE_CHECKING:
    import pandas as pd

Proposals = dict[Problem, list[str]]
Asked = Mapping[Problem, Collection[str]]


@dataclass(frozen=True, slots=True, eq=False)
class SizeView:
    """Everything that a search may know of a size.

    candidates: what the rules kept, one row each: its fields and predicted_us; the index is the name.
    timed_us:   median of the screening calls in microseconds, by name; of the first calls where stopped early.
    failed:     names without a time (compile errors, spills, crashes, wrong results); not asked for again.
    """

    problem: Problem
    candidates: pd.DataFrame
    timed_us: Mapping[str, float]
    failed: frozenset[str]

    def knows(self, name: str) -> bool:
        return name in self.timed_us or name in self.failed

    def only(self, names: Collection[str]) -> SizeView:
        """The view as it would be if only these names had been asked for."""
        timed = {name: us for name, us in self.timed_us.items() if name in names}
        return replace(self, timed_us=timed, failed=self.failed.intersection(names))

    def by_prediction(self) -> list[str]:
        """All names, predicted fastest first; equal ones in the order of the candidates."""
        return [str(name) for name in self.candidates.sort_values("predicted_us", kind="stable").index]


class Search(Protocol):
    """A pure function of the views, so that a killed run continues with the rounds it would have had.

    The caller must enter every name that was asked for in ``timed_us`` or ``failed``; other names are asked for again.
    """

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        """The names of the next round by problem, best first, none of them known. Finished sizes are absent."""

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        """Up to ``count`` names for each size that the next round may ask for, the likeliest first.

        asked: the names of the round that is being timed; these and known names are left out.
        """


def not_asked(size: SizeView, names: Sequence[str], asked: Asked) -> list[str]:
    """The names that are neither known nor in the round that is being timed (``asked``)."""
    running = frozenset(asked.get(size.problem, ()))
    return [name for name in names if name not in running and not size.knows(name)]
