"""The timings of finals, in memory and in the run's store. Those of a size are all of one GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gemm_tuner.core.records import Problem, Role, Timing
from gemm_tuner.launch.plan import FINALS
from gemm_tuner.store.store import Store

# What one process found.
Found = dict[Problem, dict[str, Timing]]


@dataclass
class FinalsTimes:
    """by_size: timings of all processes that count, one a contender and process.

    gpus: label of the GPU that timed a size's finals last.
    """

    store: Store
    by_size: dict[Problem, list[Timing]] = field(default_factory=dict)
    gpus: dict[Problem, str] = field(default_factory=dict)
    _moved: set[Problem] = field(default_factory=set)

    def begin(self, problem: Problem, gpu: str) -> None:
        """Begins a size's finals, on the GPU of this label: what others timed is forgotten."""
        self.store.drop_other_gpus(problem, FINALS, gpu)
        self.by_size.pop(problem, None)
        self.gpus[problem] = gpu

    def enter(self, timings: Iterable[Timing], gpu_of: Callable[[Problem], str], found: Found) -> None:
        """Enters timings in the store and among what their process found. Of a size that another GPU had timed, which
        failed, it first forgets all that this one timed."""
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
        """The sizes that another GPU began anew since this was asked last."""
        moved, self._moved = self._moved, set()
        return moved

    def stored(self, problem: Problem, process: int, names: Sequence[str]) -> list[Timing]:
        """What an earlier start of this run has stored of a process of a size, where it has a timing of each of these
        names; else nothing."""
        done = [timing for timing in self.store.timings(problem, FINALS) if timing.process == process]
        return done if names and {timing.name for timing in done}.issuperset(names) else []

    def enter_again(self, timings: Iterable[Timing], role: Role) -> None:
        """Enters what an earlier start of this run has stored of a process of a size, in the role that it has now."""
        timings = [replace(timing, role=role) for timing in timings]
        for problem, process in {(timing.problem, timing.process) for timing in timings}:
            self.store.set_role(problem, FINALS, role, process)
        for timing in timings:
            self.by_size.setdefault(timing.problem, []).append(timing)

    def set_role(self, problem: Problem, role: Role) -> None:
        """Gives all processes of a size a role."""
        self.store.set_role(problem, FINALS, role)
        self.by_size[problem] = [replace(timing, role=role) for timing in self.by_size[problem]]

    def drop_the_rest(self, problem: Problem) -> None:
        """Forgets processes that an earlier start of this run, or earlier finals of this size, have left."""
        stored = {timing.process for timing in self.store.timings(problem, FINALS)}
        for process in stored - {timing.process for timing in self.by_size.get(problem, ())}:
            self.store.drop_process(problem, FINALS, process)
