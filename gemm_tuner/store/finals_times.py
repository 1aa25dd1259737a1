"""The timings of finals, in memory and in the run's store. All timings of one size are from the same GPU."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gemm_tuner.core.records import Problem, Role, Timing
from gemm_tuner.launch.plan import FINALS
from gemm_tuner.store.store import Store

# Timings of one process, by problem and name.
Found = dict[Problem, dict[str, Timing]]


@dataclass
class FinalsTimes:
    """by_size: valid timings, one per finalist and process.

    gpus: label of the GPU that last timed a size's finals.
    crashes: of the run, what ended a process: it is not run again, also where its size moved to another GPU.
    """

    store: Store
    by_size: dict[Problem, list[Timing]] = field(default_factory=dict)
    gpus: dict[Problem, str] = field(default_factory=dict)
    crashes: dict[tuple[Problem, str], Timing] = field(default_factory=dict)
    _moved: set[Problem] = field(default_factory=set)

    def begin(self, problem: Problem, gpu: str) -> None:
        """Begins a size's finals on the GPU with this label, and drops timings from other GPUs."""
        self.store.drop_other_gpus(problem, FINALS, gpu)
        self.by_size.pop(problem, None)
        self.gpus[problem] = gpu

    def enter(self, timings: Iterable[Timing], gpu_of: Callable[[Problem], str], found: Found) -> None:
        """Adds timings to the store and to ``found``, the timings of one process.

        If a size moved to another GPU because its own failed, the timings from the failed GPU are dropped first.
        """
        timings = list(timings)
        crashes = {(timing.problem, timing.name): timing for timing in timings if timing.ended_its_process}
        self.crashes = {**self.crashes, **crashes}  # not changed in place, since other processes begin meanwhile
        for timing in {timing.problem: timing for timing in timings}.values():
            problem = timing.problem
            if self.gpus[problem] != gpu_of(problem):
                self.begin(problem, gpu_of(problem))
                self._moved.add(problem)
                found.pop(problem, None)
                timings += self._crashes_in(problem, timing)
        timings = [*{(timing.problem, timing.name): timing for timing in timings}.values()]
        for timing in timings:
            found.setdefault(timing.problem, {})[timing.name] = timing
        self.store.add_timings(timings, FINALS, gpu_of)

    def _crashes_in(self, problem: Problem, of: Timing) -> list[Timing]:
        """The crashes of a size, as timings of the process that ``of`` is of."""
        crashes = [timing for (of_problem, _), timing in self.crashes.items() if of_problem == problem]
        return [replace(timing, process=of.process, role=of.role) for timing in crashes]

    def take_moved(self) -> set[Problem]:
        """The sizes that were restarted on another GPU since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def stored(self, problem: Problem, process: int, names: Sequence[str]) -> list[Timing]:
        """The timings that an earlier start of this run stored for a process of a size; empty unless all names have
        one."""
        done = [timing for timing in self.store.timings(problem, FINALS) if timing.process == process]
        return done if names and {timing.name for timing in done}.issuperset(names) else []

    def enter_again(self, timings: Iterable[Timing], role: Role) -> None:
        """Adds timings that an earlier start of this run stored, with the present role of their process."""
        timings = [replace(timing, role=role) for timing in timings]
        for problem, process in {(timing.problem, timing.process) for timing in timings}:
            self.store.set_role(problem, FINALS, role, process)
        for timing in timings:
            self.by_size.setdefault(timing.problem, []).append(timing)

    def first_choosing(self, problem: Problem, count: int) -> list[Timing]:
        """The timings of the first ``count`` choosing processes of a size."""
        timings = [timing for timing in self.by_size[problem] if timing.role == Role.CHOOSE]
        first = sorted({timing.process for timing in timings})[:count]
        return [timing for timing in timings if timing.process in first]

    def set_roles(self, problem: Problem, role_of: Callable[[int], Role]) -> None:
        """Sets the roles of the processes of a size by their places."""
        processes = sorted({timing.process for timing in self.by_size[problem]})
        roles = {process: role_of(place) for place, process in enumerate(processes)}
        for process, role in roles.items():
            self.store.set_role(problem, FINALS, role, process)
        self.by_size[problem] = [replace(timing, role=roles[timing.process]) for timing in self.by_size[problem]]

    def forget(self, processes: Container[int], problems: Iterable[Problem]) -> None:
        """Drops what these processes have found of these sizes."""
        for problem in problems:
            timings = self.by_size.get(problem, [])
            for process in {timing.process for timing in self.store.timings(problem, FINALS)}:
                if process in processes:
                    self.store.drop_process(problem, FINALS, process)
            self.by_size[problem] = [timing for timing in timings if timing.process not in processes]

    def drop_the_rest(self, problem: Problem) -> None:
        """Drops stored processes of a size that are not in ``by_size``, which are remains of earlier starts or
        finals."""
        stored = {timing.process for timing in self.store.timings(problem, FINALS)}
        for process in stored - {timing.process for timing in self.by_size.get(problem, ())}:
            self.store.drop_process(problem, FINALS, process)
