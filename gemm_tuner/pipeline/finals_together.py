"""Processes of finals that run together: what each times, when the last of them begins, and what follows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from gemm_tuner.core.records import Problem, Role, Status
from gemm_tuner.launch.journal import End, Fail
from gemm_tuner.launch.plan import AHEAD, BEHIND, VENDOR, Work
from gemm_tuner.measure.gpu_watch import Sample
from gemm_tuner.measure.launcher_events import Heard, OnEvent
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.store.finals_times import Found

Roles = Mapping[Problem, Role]


@dataclass(frozen=True)
class Process:
    """The work of one finals process, and its role for each size. The rounds of the work are set when the process
    starts."""

    number: int
    roles: Roles
    work: list[Work]

    @property
    def place(self) -> str:
        """Where it has its turn among those that start together: the sooner those that choose have ended, the sooner it
        is known which sizes need more of them."""
        return AHEAD if Role.CHOOSE in self.roles.values() else BEHIND

    @property
    def keys(self) -> set[Key]:
        return {(one.problem, name) for one in self.work for name in (*(name for _, name in one.entries), VENDOR)}


@dataclass
class More:
    """Processes that follow those that start together, as soon as all of these that choose have ended.

    after:    returns them, from what each of those has found.
    numbers:  that they may have. problems: of which they may be.
    were_run: whether it was asked, and what it returned was run.
    """

    after: Callable[[Sequence[Found]], list[Process]]
    numbers: range
    problems: Sequence[Problem]
    were_run: bool = False


@dataclass
class Turns:
    """Calls ``when_last`` once: when each process has timed something, or failed to, on each GPU that has some of its
    sizes, or has ended.

    gpu_of:     the GPU of a size, which changes when one dies.
    _processes: those that are expected; none while they are not known.
    """

    gpu_of: Callable[[Problem], int | None]
    when_last: Callable[[], None]
    _processes: Sequence[Process] = ()
    _begun: set[tuple[int, int | None]] = field(default_factory=set)
    _ended: set[int] = field(default_factory=set)
    _called: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, processes: Sequence[Process]) -> None:
        """Sets the processes."""
        with self._lock:
            self._processes = tuple(processes)
        self._look()

    def heard_by(self, place: int, on_event: OnEvent) -> OnEvent:
        """What the process at ``place`` of those that are expected calls in place of ``on_event``."""

        def hear(problem: Problem, event: Heard) -> None:
            on_event(problem, event)
            if not (isinstance(event, End) or (isinstance(event, Fail) and event.status is not Status.CRASHED)):
                return  # what has only begun, or crashed, may have done so while it was loaded, before the turn
            begun = place, self.gpu_of(problem)
            if begun not in self._begun:
                with self._lock:
                    self._begun.add(begun)
                self._look()

        return hear

    def end(self, place: int) -> None:
        """Says that the process at this place has ended. All that it had on a GPU may have crashed."""
        with self._lock:
            self._ended.add(place)
        self._look()

    def _look(self) -> None:
        with self._lock:
            if self._called or not self._processes:
                return
            expected = {
                (place, self.gpu_of(work.problem))
                for place, process in enumerate(self._processes)
                if place not in self._ended
                for work in process.work
            }
            self._called = expected <= self._begun
            if not self._called:
                return
        self.when_last()


@dataclass
class Timed:
    """How many ``samples`` there were at the last event of the processes; what follows may be of a check, which begins
    while reports are written."""

    watched: Sequence[Sample]
    samples: int = 0

    def heard_by(self, on_event: OnEvent) -> OnEvent:
        """What the processes call in place of ``on_event``."""

        def hear(problem: Problem, event: Heard) -> None:
            self.samples = len(self.watched)
            on_event(problem, event)

        return hear


@dataclass
class Together:
    """Processes that run together, and what each has found. expect: told how much more is to be launched."""

    processes: list[Process]
    turns: Turns
    expect: Callable[[int], None]
    found: list[Found] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.found += ({} for _ in self.processes)

    def add(self, processes: Sequence[Process]) -> None:
        self.found += ({} for _ in processes)
        self.processes += processes
        self.expect(launched_by(processes))
        self.turns.expect(self.processes)

    def have_chosen(self, futures: Sequence[Future[Any]]) -> bool:
        """Whether those that choose have ended. futures: of the processes."""
        pairs = zip(self.processes, futures, strict=True)
        return all(future.done() for process, future in pairs if Role.CHOOSE in process.roles.values())


def launched_by(processes: Iterable[Process]) -> int:
    """How many candidates the processes launch, the vendor library and the duplicate of the A/A test among them."""
    work = (one for process in processes for one in process.work)
    return sum(len(one.entries) + one.vendor + bool(one.again) for one in work)
