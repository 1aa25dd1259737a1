"""A GPU of another machine in a launcher's place: sends plans there, leases their sizes, passes on what it hears."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import Artifact
from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.core.workload import workload_of
from gemm_tuner.executors.cluster.gpu_station import Failed, Finished, Found, Said, Told
from gemm_tuner.executors.cluster.transport import read_carried, read_scripts, write_files
from gemm_tuner.executors.cluster.worker import Worker, WorkerLost
from gemm_tuner.launch.journal import Begin, End, Fail
from gemm_tuner.launch.plan import VERIFY, Plan
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.measure.launcher_events import Died, OnEvent, ignore
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.store.leases import BEAT_S, Lease
from gemm_tuner.store.store import Store
from gemm_tuner.system.processes import MOST_CRASHES

LOOK_S = 0.2
# A station's first answer: its process may still import.
START_LIMIT_S = 120.0
CLOSE_LIMIT_S = 10.0


@dataclass
class RemoteLauncher(Launcher):
    """kernels: what of a plan's compiled kernels must be there, given the entries that are.

    beside_others: several plans may be under way there at once.
    """

    worker: Worker
    beside_others: bool
    store: Store
    scripts_dir: Path
    kernels: Callable[[Plan, set[str]], tuple[Artifact, ...]]
    wind_down: Callable[[], bool]
    say: Callable[[str], None] = lambda _: None
    _sent: set[str] = field(default_factory=set)
    _carried: set[str] = field(default_factory=set)
    _there: set[str] = field(default_factory=set)
    _numbers: Any = field(default_factory=count)
    _stop: threading.Event = field(default_factory=threading.Event)
    _sending: threading.Lock = field(default_factory=threading.Lock)

    @property
    def overlaps(self) -> bool:
        return self.beside_others

    def prepare(self) -> None:
        self.worker.call("prepare")

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        """Raises EnvironmentFault, too, when the machine is lost."""
        return self._run(plan, folder, on_event, on_found) or StageRun()

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        self._run(plan, folder, on_event, ignore)

    def cancel(self) -> None:
        self._stop.set()

    def close(self) -> None:
        with suppress(WorkerLost, TimeoutError):
            self.worker.call("close").result(CLOSE_LIMIT_S)

    def _run(self, plan: Plan, folder: Path, on_event: OnEvent, on_found: OnFound) -> StageRun | None:
        leases, running = self._lease(plan), dict[Problem, str]()
        try:
            job = self._begin(plan)
            told = False
            while True:
                for message in self._news(job, leases):
                    match message:
                        case Told(problem, event):
                            note(running, problem, event)
                            on_event(problem, event)
                        case Found(timings):
                            on_found(timings)
                        case Said(text):
                            self.say(f"{self.worker.name}: {text}")
                        case Finished(run, files):
                            write_files(files, folder)
                            self.store.leases.finish_all(leases)
                            return run
                        case Failed(error, files):
                            write_files(files, folder)
                            raise error
                if self.wind_down() and not told:
                    told = True
                    self.worker.call("wind_down")
        except WorkerLost as lost:
            self.attribute_crash(running, on_event if plan.stage == VERIFY else None, on_found)
            raise EnvironmentFault(str(lost), where=self.worker.name) from lost
        finally:  # of a plan that ended well nothing is held
            self.store.leases.give_up(leases)

    def _lease(self, plan: Plan) -> list[Lease]:
        names = [f"{plan.stage} {plan.process} {work.problem.key}" for work in plan.work]
        leases = self.store.leases
        leases.offer(names)
        leases.reopen(names)
        return leases.take(names, self.worker.name, self.worker.node, time.monotonic())

    def _begin(self, plan: Plan) -> str:
        """Sends a plan and what it needs that is not there yet."""
        job = f"{plan.stage}-{next(self._numbers):04d}"
        left_s = max(0.001, plan.deadline - time.time()) if plan.deadline else 0.0
        with self._sending:
            files = [file for file in plan.scripts if file not in self._sent]
            named = {path for work in plan.work for path in workload_of(work.problem.kind).files_of(work.problem)}
            carried = read_carried(sorted(named - self._carried))
            kernels = self.kernels(plan, self._there)
            scripts = read_scripts(self.scripts_dir, files)
            sent = self.worker.call("begin", job, plan, left_s, scripts, kernels, carried)
            until = time.monotonic() + START_LIMIT_S
            self._answer(sent, START_LIMIT_S, lambda: time.monotonic() < until)
            self._sent.update(files)
            self._carried |= named
            self._there.update(kernel.entry for kernel in kernels)
        return job

    def _news(self, job: str, held: list[Lease]) -> Any:
        """Raises WorkerLost when what is leased for the job is lost before it answers."""
        asked, leases = self.worker.call("news", job, BEAT_S / 2), self.store.leases
        leases.beat(self.worker.name, time.monotonic())  # from now on it may be silent for so long
        return self._answer(asked, leases.hold_s, lambda: leases.are_held(held, time.monotonic()))

    def _answer(self, future: Future[Any], limit_s: float, goes_on: Callable[[], bool]) -> Any:
        """Raises WorkerLost when there is none while it goes on, for about ``limit_s``; KeyboardInterrupt once the
        launcher is cancelled."""
        while True:
            if self._stop.is_set():
                self.worker.call("cancel")
                raise KeyboardInterrupt
            try:
                return future.result(LOOK_S)
            except TimeoutError:
                if not goes_on():
                    self.worker.kill()
                    raise WorkerLost(f"no sign of life for {limit_s:g} s") from None

    def attribute_crash(self, running: dict[Problem, str], on_check: OnEvent | None, on_found: OnFound) -> None:
        """What ran when a machine died is innocent the first time, and has crashed when a second one dies at it.
        on_check: hears of it in a check."""
        self.store.add_begun((problem.key, name) for problem, name in running.items())
        text = f"{MOST_CRASHES} machines died while it ran"
        if on_check is not None:
            for problem, name in running.items():
                if self.store.begun(problem)[name] >= MOST_CRASHES:
                    on_check(problem, Died(name, text))
            return
        guilty: dict[Key, Timing] = {
            (problem, name): Timing(problem, name, Status.CRASHED, message=text)
            for problem, name in running.items()
            if self.store.begun(problem)[name] >= MOST_CRASHES
        }
        if guilty:
            on_found(guilty)


def note(running: dict[Problem, str], problem: Problem, event: object) -> None:
    """Keeps the configuration that a launcher is at; it is at one at a time."""
    if isinstance(event, Begin):
        running.clear()
        running[problem] = event.name
    elif isinstance(event, (End, Fail)):
        running.clear()
