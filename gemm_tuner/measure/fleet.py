"""The GPUs of a run: which size is timed on which, and how sizes move when a GPU fails."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from gemm_tuner.core.errors import CannotWrite, EnvironmentFault
from gemm_tuner.core.records import Problem, Timing
from gemm_tuner.launch.journal import End, Judged
from gemm_tuner.launch.plan import FINALS, Plan, Work
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.measure.launcher_events import Died, Heard, OnEvent, ignore
from gemm_tuner.measure.openings import Openings
from gemm_tuner.measure.parse_run import Key, remaining
from gemm_tuner.measure.retry import OnFound, StageRun

# Configurations of one profiler start: nsys 2023.4 imported traces of 22 700 and failed at 37 600 (221 884 calls) with
# "Wrong event order has been detected".
MOST_ENTRIES_A_START = 15_000
# The calls that so many make in a screening of six calls each; in finals every finalist makes many.
MOST_CALLS_A_START = 6 * MOST_ENTRIES_A_START

T = TypeVar("T")


@dataclass
class Fleet:
    """A size stays on the GPU that it was dealt to, so that its configurations are compared on one GPU.

    say: called with a sentence on a GPU that failed.
    """

    launchers: Sequence[Launcher]
    say: Callable[[str], None]
    home: dict[Problem, int] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def overlaps(self) -> bool:
        return all(launcher.overlaps for launcher in self.launchers)

    @property
    def stays(self) -> bool:
        return all(launcher.stays for launcher in self.launchers)

    def prepare(self) -> None:
        """Lets all launchers start what takes time before they are needed."""
        for gpu in self.alive():
            self.launchers[gpu].prepare()

    def prepare_finals(self, count: int) -> None:
        """Lets ``count`` launchers on each GPU wait for the plan of a finals process, as far as launchers can."""
        for gpu in self.alive():
            self.launchers[gpu].prepare_finals(count)

    def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
        """Lets launchers that wait for plans of finals or checks open their GPUs, up to ``at_once`` of each GPU at the
        same time. Returns how many of all GPUs are doing so, and how many are left. most: as of ``Launcher``."""
        found = Openings()
        for gpu in self.alive():
            found += self.launchers[gpu].open_ahead([self._share_of(plan, gpu) for plan in plans], at_once, most)
        return found

    def _share_of(self, plan: Plan, gpu: int) -> Plan:
        """A plan without the finals of sizes that are known to be another GPU's."""
        mine = tuple(work for work in plan.work if self.home.get(work.problem, gpu) == gpu)
        return replace(plan, work=mine) if plan.stage == FINALS else plan

    def prepare_check(self) -> None:
        """Lets a launcher on each GPU wait for the plan of a check, as far as launchers can."""
        for gpu in self.alive():
            self.launchers[gpu].prepare_check()

    def open_check(self, plan: Plan) -> None:
        """Lets the launchers that wait for the plan of a check open their GPUs, for a plan like this one."""
        for gpu in self.alive():
            self.launchers[gpu].open_check(plan)

    @contextmanager
    def finals_ahead(self) -> Iterator[None]:
        """Ends the launchers that then still wait for a plan of finals."""
        try:
            yield
        finally:
            self.prepare_finals(0)

    def alive(self) -> list[int]:
        return [index for index in range(len(self.launchers)) if index not in self.dead]

    def deal(self, cost: dict[Problem, float]) -> None:
        """Assigns sizes to GPUs: the most expensive first, each to the GPU with the least load."""
        with self._lock:
            loads = dict.fromkeys(self.alive(), 0.0)
            for problem, gpu in self.home.items():
                if gpu in loads:
                    loads[gpu] += cost.get(problem, 0.0)
            for problem in sorted(cost, key=lambda one: cost[one], reverse=True):
                if self.home.get(problem) not in loads:
                    least = min(loads, key=lambda gpu: loads[gpu])
                    self.home[problem] = least
                    loads[least] += cost[problem]

    def time(
        self,
        work: Iterable[Work],
        plans_of: Callable[[list[Work]], list[tuple[Plan, Path]]],
        on_event: OnEvent,
        on_found: OnFound,
        whole_sizes: bool = False,
    ) -> list[StageRun]:
        """Times all work, each size on its GPU, all GPUs at once.

        plans_of: the profiler starts for one GPU's share. The work of a GPU that fails goes to the others.
        whole_sizes: an unfinished size of a GPU that fails is timed on another from its first configuration on, but
                     without those that ended a process.
        Raises EnvironmentFault when no GPU is left.
        """
        runs: list[StageRun] = []
        done: set[Key] = set()
        crashed: set[Key] = set()

        def found(timings: dict[Key, Timing]) -> None:
            done.update(timings)
            crashed.update(key for key, timing in timings.items() if timing.ended_its_process)
            on_found(timings)

        left = list(work)
        while left:
            self.deal({work.problem: float(len(work.entries)) for work in left})
            shares = self._shares(left)
            with self._lock:  # plans make numbered folders
                plans = {gpu: plans_of(share) for gpu, share in shares.items()}
            jobs = {gpu: partial(self._run, gpu, of_gpu, on_event, found) for gpu, of_gpu in plans.items()}
            ended, failed = self._at_once(jobs)
            runs += [run for of_gpu in ended for run in of_gpu]
            again = [work for gpu in failed for work in shares[gpu]]
            left = remaining(again, done)
            if whole_sizes:
                unfinished = {work.problem for work in left}
                done = {key for key in done if key[0] not in unfinished} | crashed
                left = remaining((work for work in again if work.problem in unfinished), done)
        return runs

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        """Checks the plan's entries, each size on its GPU, all GPUs at once; in ``folder``, and in others beside it for
        the GPUs after the first. Events come one at a time. The work of a GPU that fails goes to the others.

        Raises what ``on_event`` raises, and EnvironmentFault when no GPU is left.
        """
        heard = _Heard(on_event)
        left, folders = list(plan.work), (_beside(folder, number) for number in itertools.count())
        while left:
            self.deal({work.problem: 1.0 for work in left})
            shares = self._shares(left)
            jobs = {
                gpu: partial(self.launchers[gpu].verdicts, replace(plan, work=tuple(share)), next(folders), heard.hear)
                for gpu, share in shares.items()
            }
            try:
                _, failed = self._at_once(jobs)
            except _NotTaken as error:
                raise error.why from None
            left = heard.remaining([work for gpu in failed for work in shares[gpu]], plan)

    def _shares(self, left: list[Work]) -> dict[int, list[Work]]:
        """The work of each GPU that has some."""
        shares = {gpu: [one for one in left if self.home[one.problem] == gpu] for gpu in self.alive()}
        return {gpu: share for gpu, share in shares.items() if share}

    def _at_once(self, jobs: Mapping[int, Callable[[], T]]) -> tuple[list[T], list[int]]:
        """Does a job on each of these GPUs, all at once: what came of it, and the GPUs that failed, which are given
        up."""
        ended: list[T] = []
        failed: list[int] = []
        with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
            futures = {gpu: pool.submit(job) for gpu, job in jobs.items()}
            self._wait(futures)
            for gpu, future in futures.items():
                try:
                    ended.append(future.result())
                except EnvironmentFault as fault:
                    self._retire_gpu(gpu, fault)
                    failed.append(gpu)
        return ended, failed

    def _run(self, gpu: int, plans: list[tuple[Plan, Path]], on_event: OnEvent, on_found: OnFound) -> list[StageRun]:
        return [self.launchers[gpu].timings(plan, folder, on_event, on_found) for plan, folder in plans]

    def _wait(self, futures: dict[int, Future[T]]) -> None:
        """Until all have ended. Another error than a GPU's fault, or Ctrl-C, ends the others too."""
        try:
            for future in as_completed(futures.values()):
                error = future.exception()
                if isinstance(error, CannotWrite) or (error and not isinstance(error, EnvironmentFault)):
                    raise error
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends what runs on all GPUs, from another thread."""
        for launcher in self.launchers:
            launcher.cancel()

    def _retire_gpu(self, gpu: int, fault: EnvironmentFault) -> None:
        with self._lock:
            if gpu in self.dead:
                return
            if len(self.alive()) == 1:
                raise fault
            self.dead.add(gpu)
        self.say(f"GPU {gpu} of the run is given up, its sizes go to the others: {fault.one_line()}")


class _NotTaken(Exception):
    """What hears of checks raised an error, which is no fault of a GPU."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


class _Heard:
    """Passes the events of checks on, one at a time, and knows what is left to check."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event, self._lock = on_event, threading.Lock()
        self._ended: set[Key] = set()
        self._wrong: set[Key] = set()
        self._judged: set[Key] = set()

    def hear(self, problem: Problem, event: Heard) -> None:
        key = problem, event.name
        with self._lock:
            try:
                self._on_event(problem, event)
            except Exception as error:
                raise _NotTaken(error) from error
            if isinstance(event, Judged):
                (self._judged if event.ok else self._wrong).add(key)
            elif isinstance(event, (End, Died)):
                self._ended.add(key)

    def remaining(self, works: Iterable[Work], plan: Plan) -> list[Work]:
        """The works of a GPU that failed, without what is known; nothing of a size whose right one was found, where
        that is enough."""
        right = {key[0] for key in self._ended & self._judged - self._wrong} if plan.stop_at_first_right else set()
        return [work for work in remaining(works, self._ended) if work.problem not in right]


def _beside(folder: Path, number: int) -> Path:
    return folder.with_name(f"{folder.name}-{number}") if number else folder


def starts_for(share: list[Work]) -> int:
    """Profiler starts that a share needs for none to hold more than MOST_ENTRIES_A_START, whole sizes aside."""
    return max(1, -(-sum(len(work.entries) for work in share) // MOST_ENTRIES_A_START))


def starts_for_finals(share: list[Work], rounds: int) -> int:
    """Profiler starts for none to hold more than MOST_CALLS_A_START, whole sizes aside. rounds: of a work that does
    not say."""
    calls = sum((len(one.entries) + one.vendor + bool(one.again)) * (one.rounds or rounds) for one in share)
    return max(1, -(-calls // MOST_CALLS_A_START))


def deal(work: list[Work], count: int) -> list[list[Work]]:
    """Splits a share into at most ``count`` profiler starts, the largest sizes first, each to the least loaded;
    within a start the sizes stay in their order."""
    starts: list[list[int]] = [[] for _ in range(min(count, max(1, len(work))))]
    loads = [0] * len(starts)
    for index in sorted(range(len(work)), key=lambda index: len(work[index].entries), reverse=True):
        least = loads.index(min(loads))
        starts[least].append(index)
        loads[least] += len(work[index].entries)
    return [[work[index] for index in sorted(indices)] for indices in starts]
