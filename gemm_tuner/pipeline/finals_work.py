"""What a process of finals times of each size, without what failed before or an earlier start of the run has stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gemm_tuner.core.records import Role
from gemm_tuner.launch.plan import VENDOR, Work
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.store.finals_times import FinalsTimes


@dataclass(frozen=True)
class Contradicted:
    """A size whose chosen finalist was clearly slower than another (``better``) in the publishing processes."""

    state: SizeState
    names: list[str]
    chosen: str
    better: str


@dataclass(frozen=True)
class FinalsWork:
    """times: of the finals so far, in memory and in the store."""

    planner: Planner
    times: FinalsTimes

    def of(self, state: SizeState, names: list[str], number: int, role: Role) -> Work | None:
        """The work of process ``number`` for a size. None if it is in the store, from where it is then taken with this
        role, or if nothing is left."""
        left, failed = self._left(state, names)
        done = self.times.stored(state.problem, number, left)
        if done:
            self.times.enter_again(done, role)
        if done or not left:
            return None
        return replace(self.planner.work(state, left), vendor=VENDOR not in failed, again=left[0])

    def stored(self, finalists: Named, numbers: Iterable[int]) -> Named:
        """The sizes of which the store has the results of all of these processes."""
        numbers = list(numbers)
        return [(state, names) for state, names in finalists if self._has_all(state, names, numbers)]

    def _has_all(self, state: SizeState, names: list[str], numbers: Iterable[int]) -> bool:
        left, _ = self._left(state, names)
        return all(self.times.stored(state.problem, number, left) for number in numbers)

    def _left(self, state: SizeState, names: list[str]) -> tuple[list[str], set[str]]:
        """(those names that have not failed in the finals, all names of the size that have)."""
        failed = {timing.name for timing in self.times.by_size.get(state.problem, ()) if timing.failed}
        return [name for name in names if name not in failed], failed
