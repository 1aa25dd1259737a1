"""What processes of finals time of each size, without what failed before or an earlier start of the run has stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemm_tuner.core.records import Problem, Role, Timing
from gemm_tuner.decide.finals_plan import FinalsPlan
from gemm_tuner.decide.ranking import Ranking, rankings_so_far, sheets_so_far
from gemm_tuner.decide.sheet import Sheet
from gemm_tuner.launch.plan import VENDOR, Work
from gemm_tuner.pipeline.finals_together import Process, Roles
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.store.finals_times import FinalsTimes, Found


@dataclass(frozen=True)
class FinalsWork:
    """times: of the finals so far, in memory and in the store. states: of the sizes in it. so_far: the last ranking of
    each size. sheets: the times that it was made from."""

    planner: Planner
    times: FinalsTimes
    states: Mapping[Problem, SizeState]
    so_far: dict[Problem, Ranking] = field(default_factory=dict)
    sheets: dict[Problem, Sheet] = field(default_factory=dict)

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

    def processes(
        self, finalists: Named, each: Sequence[Roles], first: int, has: Callable[[int], bool]
    ) -> list[Process]:
        """Processes that have something to time.

        each: of each process, the sizes that it has, with its role. first: the number of the first one. has: whether a
        process with this number can be run.
        """
        processes: list[Process] = []
        for number, roles in enumerate(each, first):
            its = [(state, names, roles[state.problem]) for state, names in finalists if state.problem in roles]
            works = list(filter(None, (self.of(state, names, number, role) for state, names, role in its)))
            if works and has(number):
                processes.append(Process(number, roles, works))
        return processes

    def rank(self, finalists: Named, plan: FinalsPlan, found: Sequence[Found] = ()) -> None:
        """Ranks the finalists by the choosing processes. found: of processes of which ``times`` has nothing yet.

        The noise is estimated from all sizes of the run, of the others by their planned processes: so a run that goes
        on with some of the sizes ranks these as an undisturbed one did.
        """
        timings: dict[Problem, list[Timing]] = {
            problem: self.times.first_choosing(problem, plan.choosing) for problem in self.times.by_size
        }
        for state, _ in finalists:
            timings[state.problem] = [
                *self.times.by_size.get(state.problem, ()),
                *(timing for one in found for timing in one.get(state.problem, {}).values()),
            ]
        own = {problem: self.states[problem].own for problem in timings}  # a server's own kernel cannot win a size
        sheets = sheets_so_far(timings)
        self.sheets.update(sheets)
        self.so_far.update(rankings_so_far(sheets, own, plan.most_choosing))

    def undecided(self, finalists: Named) -> Named:
        """The sizes that more choosing processes are expected to decide, with the finalists that can still win."""
        names = {state.problem: list(self.so_far[state.problem].undecided) for state, _ in finalists}
        return [(state, names[state.problem]) for state, _ in finalists if names[state.problem]]

    def leading(self, finalists: Named, most: int) -> Named:
        """Up to ``most`` of the finalists of each size that may win it: one, where choosing processes have decided it,
        those that led last, where they have not; and as given, where nothing is known."""
        found: Named = []
        for state, names in finalists:
            ranked = self.so_far.get(state.problem, Ranking(tuple(names), undecided=tuple(names)))
            found.append((state, list(ranked.order[: most if ranked.undecided else 1])))
        return found

    def us_so_far(self, state: SizeState) -> dict[str, float]:
        """``best_first`` by the last ranking, without finalists that have failed. Empty before there is a ranking."""
        if state.problem not in self.so_far:
            return {}
        cells = self.sheets[state.problem].all
        return best_first(state, self.so_far[state.problem].order, {name: cells.us(name) for name in cells.names})

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


def best_first(state: SizeState, order: Iterable[str], us: Mapping[str, float]) -> dict[str, float]:
    """Times of a size by name, microseconds: first the ranked ones in order, then those that cannot win the size
    (servers' own kernels and rivals), fastest first."""
    beside = sorted(us.keys() & (state.kept.keys() - state.own.keys()), key=lambda name: (us[name], name))
    return {name: us[name] for name in (*order, *beside) if name in us}
