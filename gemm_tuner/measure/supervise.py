"""Runs launcher processes, follows their journals while they run, and restarts checks after a crash."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gemm_tuner.core.errors import FREE_SPACE, CannotWrite, EnvironmentFault
from gemm_tuner.core.workload import workload_of
from gemm_tuner.launch.journal import (
    CALL_BEGINS,
    Begin,
    End,
    Event,
    Fail,
    Finished,
    Judged,
    Process,
    Ran,
    Round,
    event_of,
    read_journal,
)  # fmt: skip
from gemm_tuner.launch.plan import EXIT_CANNOT_WRITE, STOP_FILE, VERIFY, Plan
from gemm_tuner.launch.turn import WAITING_FILE
from gemm_tuner.measure.budget import LATE_CHECK_S
from gemm_tuner.measure.launcher_events import Died, OnEvent
from gemm_tuner.measure.parse_run import Key, at_end, compared_at_end, crash_timing, from_on
from gemm_tuner.measure.starts_ahead import LOG, Waiting
from gemm_tuner.system.processes import FROM_OUTSIDE, MOST_CRASHES, Ended, identity, pid_of, run_watched

# Time limit without journal events at the start: profiler, Python and torch start, and operands of GiBs are made.
START_LIMIT_S = 180.0
# Time limit without journal events at the end: a report of 10^5 kernels takes tens of seconds to write and convert.
REPORT_LIMIT_S = 900.0
# Maximum number of processes for one plan.
MAX_ATTEMPTS = 25
# A file in a launcher's folder: all results of its journal are in the run's store.
ACCOUNTED = "accounted"
# A file in the folder of a probe (a plan that searches for the configuration that crashes finals): ignore its times.
PROBE = "probe"


class NotBegun(Exception):
    """A launcher that waited for the GPU was ended, because the run is to end."""


class OutOfTime(Exception):
    """A check was ended because its plan's deadline has passed; its configuration has no result."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """How a launcher's processes are ended from outside.

    wind_down:      returns whether the run is to end after the current configuration.
    stop:           set this event to kill the processes at once.
    launch_limit_s: time limit of one configuration, after which its launcher is killed.
    """

    wind_down: Callable[[], bool] = field(default=lambda: False)
    launch_limit_s: float = START_LIMIT_S
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass
class JournalTail:
    """Follows a growing journal and forwards its events.

    finished: the last event has been read.
    running:  a configuration is running.
    ended_at: time.monotonic() when the launcher finished or was found dead; then the profiler writes its report.
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
        """A value that changes while the launcher makes progress, and for REPORT_LIMIT_S after it has ended."""
        if self.path.exists():
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                new = stream.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.decode("utf-8", "replace").split("\n")[:-1]:
                if not line.startswith(CALL_BEGINS):  # calls, of which there are most, tell nothing here
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
        if isinstance(event, (Begin, Round, Ran, End, Fail)):
            self._at_work = isinstance(event, (Begin, Round))
        if isinstance(event, (Begin, End, Fail, Judged)):
            self.on_event(self.plan.work[event.work].problem, event)


def watch(
    argv: list[str], env: dict[str, str], where: Path, on_event: OnEvent, of: Control, waiting: Waiting | None = None
) -> Ended:
    """Runs a launcher and follows its journal. A run that is to end lets it finish the current configuration.

    waiting: a launcher that was started ahead; another is started in its place if it ends without a journal.
    Kills the launcher and raises KeyboardInterrupt when ``of.stop`` is set, OutOfTime, or NotBegun.
    """
    heartbeat, limit_s, finished = follow(where, on_event, of)
    if waiting is not None:
        path = where / "plan.json"
        checks = Plan.read(path).stage == VERIFY  # which leaves nothing to wait for: it ends for 0.4 s
        ended = waiting.run(path, heartbeat, limit_s, finished if checks else None)
        if (where / "journal.jsonl").exists():
            return ended
    return run_watched(argv, env, where / LOG, heartbeat=heartbeat, stall_limit_s=limit_s)


def follow(
    where: Path, on_event: OnEvent, of: Control
) -> tuple[Callable[[], object], Callable[[], float], Callable[[], bool]]:
    """Functions that supervise a launcher whose plan is in ``where``: (a heartbeat, which changes while the launcher
    makes progress; how long it may stay unchanged, seconds; whether the journal is complete)."""
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
    """Runs the command that converts a profiler's recording to text. Kills it and raises KeyboardInterrupt when
    ``of.stop`` is set. A run that is to end waits for it, because it provides the times."""

    def heartbeat() -> object:
        if of.stop.is_set():
            raise KeyboardInterrupt
        return None

    return run_watched(argv, env, where / "export.log", heartbeat=heartbeat, stall_limit_s=REPORT_LIMIT_S)


def killed_from_outside(ended: Ended) -> bool:
    """Whether something other than the tuner killed a process or its child. A profiler whose child was killed exits
    with 128 plus the signal's number."""
    return not ended.stalled and ended.exit_status in FROM_OUTSIDE


def require_journal(ended: Ended) -> None:
    """Raises CannotWrite for a launcher that could not write its journal, in which case no configuration failed."""
    if ended.exit_status == EXIT_CANNOT_WRITE:
        raise CannotWrite(
            f"the launcher could not write: {ended.log_tail()}",
            where=str(ended.log_path.parent),
            hint=FREE_SPACE,
        )


def check_plan(
    plan: Plan, folder: Path, scripts_dir: Path, env: dict[str, str], on_event: OnEvent, of: Control,
    waiting: Waiting | None = None, turn: Sequence[str] = (),
) -> None:  # fmt: skip
    """Checks the entries in order, in up to MAX_ATTEMPTS processes, until the plan's deadline. waiting: the first of
    them, where it was started before. turn: arguments of a launcher that takes turns on the GPU.

    An entry whose process was killed from outside is tried again, and so are all that were being compared with each
    other when their process died. Entries that are left after MAX_ATTEMPTS processes are reported as Died.
    """
    left, crashes = plan, Counter[Key | None]()
    for attempt in range(MAX_ATTEMPTS):
        where = folder / f"start{attempt:02d}"
        where.mkdir(parents=True)
        left.write(where / "plan.json")
        argv = [sys.executable, str(scripts_dir / left.scripts[0]), "--plan", str(where / "plan.json"), *turn]
        try:
            ended = watch(argv, env, where, on_event, of, waiting if attempt == 0 else None)
        except (OutOfTime, NotBegun):
            (where / ACCOUNTED).touch()
            return
        journal = read_journal(where / "journal.jsonl")
        if any(isinstance(e, Finished) for e in journal):
            (where / ACCOUNTED).touch()
            return
        require_journal(ended)
        at = at_end(journal)
        compared = compared_at_end(journal)
        place = at or (None if compared is None else (compared, ""))
        key = (left.work[place[0]].problem, place[1]) if place else None
        crashes[key] += 1
        retried = (compared is not None or killed_from_outside(ended)) and crashes[key] < MOST_CRASHES
        if key is None and not retried:
            raise EnvironmentFault(
                f"the check ended with {ended.how()}: {ended.log_tail() or 'it printed nothing'}",
                where=str(ended.log_path),
            )
        if key is not None and not retried:
            message = crash_timing(*key, ended).message
            for name in [key[1]] if compared is None else not_ended(left, journal, compared):
                on_event(key[0], Died(name, message))
            (where / ACCOUNTED).touch()
        if compared is not None and not retried:
            left = replace(left, work=left.work[compared + 1 :])
        else:
            left = behind(left, journal, again=retried)
        if not left.work or of.wind_down() or plan.is_over():
            return
    message = f"not checked: {MAX_ATTEMPTS} processes died before its turn"
    for work in left.work:
        for _, name in work.entries:
            on_event(work.problem, Died(name, message))


def not_ended(plan: Plan, journal: Sequence[Event], work: int) -> list[str]:
    """The entries of a work that have no end."""
    ended = {(e.work, e.name) for e in journal if isinstance(e, End)}
    return [name for _, name in plan.work[work].entries if (work, name) not in ended]


def behind(plan: Plan, journal: Sequence[Event], *, again: bool) -> Plan:
    """The rest of a plan after the entry that was running or ended last. again: include the entry that was running.
    Entries that are compared with each other end together, so the rest includes all of them that have not ended."""
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
