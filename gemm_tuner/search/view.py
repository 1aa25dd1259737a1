"""What a search sees of a size, and what it must answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from gemm_tuner.core.records import Device
from gemm_tuner.gemm.problem import GemmProblem

if TYPE_CHECKING:
    import pandas as pd

Proposals = dict[GemmProblem, list[str]]
Asked = Mapping[GemmProblem, Collection[str]]


@dataclass(frozen=True, slots=True, eq=False)
class SizeView:
    """All that a search may see of a size.

    candidates: what the rules kept, one row each: KernelConfig's fields and predicted_us; the index is the name.
    timed_us:   median of the screening calls by name, us; of one stopped early, its first calls.
    failed:     names that gave no time (compile errors, spills, crashes, wrong results); never asked again.
    """

    problem: GemmProblem
    candidates: pd.DataFrame
    timed_us: Mapping[str, float]
    failed: frozenset[str]

    def knows(self, name: str) -> bool:
        return name in self.timed_us or name in self.failed

    def only(self, names: Collection[str]) -> SizeView:
        """The same size when no more than these had been asked."""
        timed = {name: us for name, us in self.timed_us.items() if name in names}
        return replace(self, timed_us=timed, failed=self.failed.intersection(names))

    def by_prediction(self) -> list[str]:
        """All names, predicted best first; equal ones in the order of the candidates."""
        return [str(name) for name in self.candidates.sort_values("predicted_us", kind="stable").index]


class Search(Protocol):
    """A pure function of the views: a run that was killed goes on with the rounds it would have had.

    Whoever times must end every name that was asked in ``timed_us`` or ``failed``; a name in neither is asked again.
    """

    @property
    def name(self) -> str: ...

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        """The names of the next round, best first, none of them known. A finished size is absent; empty: all are."""

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        """Up to ``count`` names a size that may be asked in the round after this one, the likeliest first.

        ``asked`` holds the names of the round that is being timed; those and known ones are left out.
        """


def not_asked(size: SizeView, names: Sequence[str], asked: Asked) -> list[str]:
    """The names that are neither known nor in the round that runs."""
    running = frozenset(asked.get(size.problem, ()))
    return [name for name in names if name not in running and not size.knows(name)]
