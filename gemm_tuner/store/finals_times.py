"""The timings of finals, in memory and in the run's store. All timings of a size are from one GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gemm_tuner.core.records import Problem, Role, Timing
from gemm_tuner.launch.plan import FINALS
from gemm_tuner.store.store import Store

# Timings of one process, by problem and name.
Found = dict[Problem, dict[str, Timing]]


@dataclass
class FinalsTimes:
    """by_size: timings of all processes that count, one for each finalist and process.

    gpus: label of the GPU that timed a size's finals last.
    """

    store: Store
    by_size: dict[Problem, list[Timing]] = field(default_factory=dict)
    gpus: dict[Problem, str] = field(default_factory=dict)
    _moved: set[Problem] = field(default_factory=set)

    def begin(self, problem: Problem, gpu: str) -> None:
        """Begins a size's finals on the GPU of this label, and drops timings of other GPUs."""
        self.store.drop_other_gpus(problem, FINALS, gpu)
        self.by_size.pop(problem, None)
        self.gpus[problem] = gpu

    def enter(self, timings: Iterable[Timing], gpu_of: Callable[[Problem], str], found: Found) -> None:
        """Adds timings to the store and to ``found``, those of their process.

        A size whose GPU failed is timed anew on another: its timings of the failed GPU are dropped first.
        """
        timings = list(timings)
        for problem in {timing.problem for timing in timings}:
            if self.gpus[problem] != gpu_of(problem):
                self.begin(problem, gpu_of(problem))
                self._moved.add(problem)
                found.pop(problem, None)
        for timing in timings:
            found.setdefault(timing.problem, {})[timing.name] = timing
        self.store.add_timings(timings, FINALS, gpu_of)

    def take_moved(self) -> set[Problem]:
        """The sizes that were begun anew on another GPU since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def stored(self, problem: Problem, process: int, names: Sequence[str]) -> list[Timing]:
        """The timings that an earlier start of this run stored for a process of a size, if it has one of each name;
        else none."""
        done = [timing for timing in self.store.timings(problem, FINALS) if timing.process == process]
        return done if names and {timing.name for timing in done}.issuperset(names) else []

    def enter_again(self, timings: Iterable[Timing], role: Role) -> None:
        """Adds timings that an earlier start of this run stored, with the role that their process has now."""
        timings = [replace(timing, role=role) for timing in timings]
        for problem, process in {(timing.problem, timing.process) for timing in timings}:
            self.store.set_role(problem, FINALS, role, process)
        for timing in timings:
            self.by_size.setdefault(timing.problem, []).append(timing)

    def set_role(self, problem: Problem, role: Role) -> None:
        """Sets the role of all processes of a size."""
        self.store.set_role(problem, FINALS, role)
        self.by_size[problem] = [replace(timing, role=role) for timing in self.by_size[problem]]

    def drop_the_rest(self, problem: Problem) -> None:
        """Drops stored processes of a size that are not in ``by_size``: leftovers of earlier starts or finals."""
        stored = {timing.process for timing in self.store.timings(problem, FINALS)}
        for process in stored - {timing.process for timing in self.by_size.get(problem, ())}:
            self.store.drop_process(problem, FINALS, process)
