"""The input of a search (a view of each size) and the protocol of searches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from gemm_tuner.core.records import Device, Problem

if TYPE_CHECKING:
    import pandas as pd

Proposals = dict[Problem, list[str]]
Requested = Mapping[Problem, Collection[str]]


@dataclass(frozen=True, slots=True, eq=False)
class SizeView:
    """Everything that a search knows about a size.

    candidates: the configurations that the rules keep, one row each, with fields and predicted_us; indexed by name.
    timed_us:   median screening time by name, microseconds; of the calls so far for those that were stopped early.
    failed:     names without a time (compile errors, spills, crashes, wrong results); not requested again.
    """

    problem: Problem
    candidates: pd.DataFrame
    timed_us: Mapping[str, float]
    failed: frozenset[str]

    def knows(self, name: str) -> bool:
        return name in self.timed_us or name in self.failed

    def only(self, names: Collection[str]) -> SizeView:
        """The view as it would be if only these names had been requested."""
        timed = {name: us for name, us in self.timed_us.items() if name in names}
        return replace(self, timed_us=timed, failed=self.failed.intersection(names))

    def by_prediction(self) -> list[str]:
        """All names, predicted fastest first; ties in the order of the candidates."""
        return [str(name) for name in self.candidates.sort_values("predicted_us", kind="stable").index]


class Search(Protocol):
    """A search: a pure function of the views, so that a killed run continues with the same rounds.

    The caller must put every requested name into ``timed_us`` or ``failed``; otherwise it is requested again.
    """

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        """The unknown names to time next, by problem, best first. Finished sizes are absent."""

    def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
        """Up to ``count`` names per size that the next round may request, most likely first; they are compiled ahead.

        requested: the names of the round that is being timed; these and known names are excluded.
        """


def not_requested(size: SizeView, names: Sequence[str], requested: Requested) -> list[str]:
    """Those names that are neither known nor in the round that is being timed (``requested``)."""
    running = frozenset(requested.get(size.problem, ()))
    return [name for name in names if name not in running and not size.knows(name)]
