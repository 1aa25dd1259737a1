"""Runs launcher processes: follows their journals while they run, and restarts checks after a crash."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import FREE_SPACE, CannotWrite, EnvironmentFault
from gemm_tuner.core.records import Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.launch.journal import Begin, End, Event, Fail, Finished, Judged, Process, Round, event_of, read_journal
from gemm_tuner.launch.plan import EXIT_CANNOT_WRITE, STOP_FILE, VERIFY, Plan
from gemm_tuner.launch.turn import WAITING_FILE
from gemm_tuner.measure.parse_run import Key, at_end, crash_timing, from_on
from gemm_tuner.system.processes import FROM_OUTSIDE, MOST_CRASHES, Ended, identity, pid_of, run_watched

# Starting a profiler, Python and torch, and making operands of GiBs, with the journal at rest.
START_LIMIT_S = 180.0
# Writing and converting the report of 10^5 kernels takes tens of seconds, with the journal at rest.
REPORT_LIMIT_S = 900.0
# Processes that a plan may need.
MAX_ATTEMPTS = 25
# Marks a launcher's folder whose journal is fully entered in the run's store.
ACCOUNTED = "accounted"
# Marks the folder of a probe, a plan that looks for the configuration that crashes finals; its times do not count.
PROBE = "probe"

# A check that a budget's end finds running has this long to end.
LATE_CHECK_S = 2.0


@dataclass(frozen=True, slots=True)
class Died:
    """A configuration whose check crashed or hung; the journal has no event of that."""

    name: str
    message: str


Heard = Begin | End | Fail | Judged | Died
# Hears what becomes of a configuration of a problem, as it happens.
OnEvent = Callable[[Problem, Heard], None]


class NotBegun(Exception):
    """A launcher was ended while it waited for its turn on the GPU, since the run winds down."""


class OutOfTime(Exception):
    """A check was ended since the time of its plan is over; nothing is known of the configuration."""


def ignore(*heard: Any) -> None:
    """An OnEvent that does nothing."""


def at_each_end(advance: Callable[[], None]) -> OnEvent:
    """Calls ``advance`` when a configuration has ended or failed."""

    def hear(problem: Problem, event: Heard) -> None:
        if isinstance(event, (End, Fail)):
            advance()

    return hear


@dataclass(frozen=True, kw_only=True)
class Control:
    """When the processes of a launcher are ended from outside.

    wind_down: whether the run is to end after the launch that runs. stop: set to kill at once.
    launch_limit_s: how long one configuration may take before its launcher is killed.
    """

    wind_down: Callable[[], bool] = field(default=lambda: False)
    launch_limit_s: float = START_LIMIT_S
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass
class JournalTail:
    """Follows a growing journal and passes its events on. finished: whether its last event was heard.

    running: whether a configuration is running. ended_at: when the launcher finished or was seen to be dead, a time of
    time.monotonic(); after that the profiler writes its report.
    """

    path: Path
    plan: Plan
    on_event: OnEvent
    ended_at: float | None = None
    finished: bool = False
    _at_work: bool = False
    _launcher: str = ""
    _offset: int = 0

    @property
    def running(self) -> bool:
        return self._at_work and self.ended_at is None

    def beat(self) -> object:
        """Changes while the launcher is alive, and for REPORT_LIMIT_S after it has finished or died."""
        if self.path.exists():
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                new = stream.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.decode("utf-8", "replace").split("\n")[:-1]:
                self._pass_on(event_of(line, str(self.path), len(self.plan.work)))
        if self.ended_at is None and self._launcher and identity(pid_of(self._launcher)) != self._launcher:
            self.ended_at = time.monotonic()
        if self.ended_at is None or time.monotonic() - self.ended_at > REPORT_LIMIT_S:
            return self._offset
        return time.monotonic()

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, Process):
            self._launcher = event.identity
        if isinstance(event, Finished):
            self.finished = True
            self.ended_at = time.monotonic()
        if isinstance(event, (Begin, Round, End, Fail)):
            self._at_work = isinstance(event, (Begin, Round))
        if isinstance(event, (Begin, End, Fail, Judged)):
            self.on_event(self.plan.work[event.work].problem, event)


def watch(argv: list[str], env: dict[str, str], where: Path, on_event: OnEvent, of: Control) -> Ended:
    """Runs a launcher and follows its journal. Raises KeyboardInterrupt, the launcher killed, once ``of.stop`` is
    set, and OutOfTime and NotBegun in the same way; a run that winds down lets it finish the configuration it is at."""
    heartbeat, limit_s, _ = follow(where, on_event, of)
    return run_watched(argv, env, where / "launcher.log", heartbeat=heartbeat, stall_limit_s=limit_s)


def follow(
    where: Path, on_event: OnEvent, of: Control
) -> tuple[Callable[[], object], Callable[[], float], Callable[[], bool]]:
    """For a launcher whose plan lies in ``where``: what changes while it is alive, how long that may rest, and whether
    its journal is complete."""
    tail = JournalTail(where / "journal.jsonl", Plan.read(where / "plan.json"), on_event)

    def heartbeat() -> object:
        if of.stop.is_set():
            raise KeyboardInterrupt
        if tail.plan.stage == VERIFY and 0 < tail.plan.deadline < time.time() - LATE_CHECK_S:
            raise OutOfTime
        waits = (where / WAITING_FILE).exists()
        if of.wind_down():
            if waits:
                raise NotBegun
            (where / STOP_FILE).touch()
        return time.monotonic() if waits else tail.beat()

    def limit_s() -> float:
        return of.launch_limit_s if tail.running else START_LIMIT_S

    return heartbeat, limit_s, lambda: tail.finished


def export(argv: list[str], env: dict[str, str], where: Path, of: Control) -> Ended:
    """Runs the command that turns a profiler's recording into text. Raises KeyboardInterrupt, the command killed, once
    ``of.stop`` is set; a run that winds down waits for it, since times depend on it."""

    def heartbeat() -> object:
        if of.stop.is_set():
            raise KeyboardInterrupt
        return None

    return run_watched(argv, env, where / "export.log", heartbeat=heartbeat, stall_limit_s=REPORT_LIMIT_S)


def killed_from_outside(ended: Ended) -> bool:
    """Whether a process or its child was killed by something else than the tuner. A profiler whose child was killed
    exits with 128 plus the signal's number."""
    return not ended.stalled and ended.exit_status in FROM_OUTSIDE


def require_journal(ended: Ended) -> None:
    """Raises CannotWrite for a launcher that could not write its journal: no configuration failed."""
    if ended.exit_status == EXIT_CANNOT_WRITE:
        raise CannotWrite(
            f"the launcher could not write: {ended.log_tail()}",
            where=str(ended.log_path.parent),
            hint=FREE_SPACE,
        )


def check_plan(
    plan: Plan, folder: Path, scripts_dir: Path, env: dict[str, str], on_event: OnEvent, of: Control
) -> None:
    """Checks every entry, in order, in up to MAX_ATTEMPTS processes. Nothing is checked after the plan's deadline.

    An entry whose process was killed from outside is tried again. Entries that MAX_ATTEMPTS processes did not reach are
    reported as Died, too.
    """
    left, crashes = plan, Counter[Key | None]()
    for attempt in range(MAX_ATTEMPTS):
        where = folder / f"start{attempt:02d}"
        where.mkdir(parents=True)
        left.write(where / "plan.json")
        argv = [sys.executable, str(scripts_dir / left.scripts[0]), "--plan", str(where / "plan.json")]
        try:
            ended = watch(argv, env, where, on_event, of)
        except OutOfTime:
            (where / ACCOUNTED).touch()
            return
        journal = read_journal(where / "journal.jsonl")
        if any(isinstance(e, Finished) for e in journal):
            (where / ACCOUNTED).touch()
            return
        require_journal(ended)
        at = at_end(journal)
        key = (left.work[at[0]].problem, at[1]) if at else None
        crashes[key] += 1
        retried = killed_from_outside(ended) and crashes[key] < MOST_CRASHES
        if key is None and not retried:
            raise EnvironmentFault(
                f"the check ended with {ended.how()}: {ended.log_tail() or 'it printed nothing'}",
                where=str(ended.log_path),
            )
        if key is not None and not retried:
            on_event(key[0], Died(key[1], crash_timing(*key, ended).message))
            (where / ACCOUNTED).touch()
        left = behind(left, journal, again=retried)
        if not left.work or of.wind_down() or plan.is_over():
            return
    message = f"not checked: {MAX_ATTEMPTS} processes died before its turn"
    for work in left.work:
        for _, name in work.entries:
            on_event(work.problem, Died(name, message))


def behind(plan: Plan, journal: Sequence[Event], *, again: bool) -> Plan:
    """What is left of a plan after the entry that was running, or that ended last. again: include the one that was
    running. Entries that are compared with each other end together: those that have not are all left."""
    running = at_end(journal)
    ended = [(e.work, e.name) for e in journal if isinstance(e, End)]
    last = running or (ended[-1] if ended else None)
    if last is None:
        return plan
    again = again and running is not None
    index, work = last[0], plan.work[last[0]]
    if not workload_of(work.problem.kind).compares_configs(work.problem):
        return from_on(plan, *last, itself=again)
    gone = {name for at, name in ended if at == index} | (set() if again else {last[1]})
    left = replace(work, entries=tuple(entry for entry in work.entries if entry[1] not in gone))
    return replace(plan, work=tuple(one for one in (left, *plan.work[index + 1 :]) if one.entries))
