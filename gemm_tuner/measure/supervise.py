"""Runs a launcher process and follows its journal while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gemm_tuner.core.errors import FREE_SPACE, CannotWrite
from gemm_tuner.core.records import Problem
from gemm_tuner.launch.journal import Begin, End, Event, Fail, Finished, Judged, Process, Round, event_of
from gemm_tuner.launch.plan import EXIT_CANNOT_WRITE, STOP_FILE, VERIFY, Plan
from gemm_tuner.system.processes import FROM_OUTSIDE, Ended, identity, pid_of, run_watched

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
    """A configuration that killed its checks' process, or whose check came to no end: there is no event of it."""

    name: str
    message: str


Heard = Begin | End | Fail | Judged | Died
# Hears what becomes of a configuration of a problem, as it happens.
OnEvent = Callable[[Problem, Heard], None]


class OutOfTime(Exception):
    """A check was ended since the time of its plan is over; nothing is known of the configuration."""


def ignore(*heard: Any) -> None:
    """An OnEvent that does nothing."""


def at_each_end(advance: Callable[[], None]) -> OnEvent:
    """Calls ``advance`` when a configuration has come to its end, in whatever way."""

    def hear(problem: Problem, event: Heard) -> None:
        if isinstance(event, (End, Fail)):
            advance()

    return hear


class Watched(Protocol):
    """What a launcher says of the process it has started."""

    @property
    def wind_down(self) -> Callable[[], bool]: ...

    @property
    def launch_limit_s(self) -> float: ...

    @property
    def stop(self) -> threading.Event: ...


@dataclass
class JournalTail:
    """Follows a growing journal and passes its events on.

    running: whether a configuration is running. ended_at: when the launcher finished or was seen to be dead, a time of
    time.monotonic(); after that the profiler writes its report.
    """

    path: Path
    plan: Plan
    on_event: OnEvent
    ended_at: float | None = None
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
            self.ended_at = time.monotonic()
        if isinstance(event, (Begin, Round, End, Fail)):
            self._at_work = isinstance(event, (Begin, Round))
        if isinstance(event, (Begin, End, Fail, Judged)):
            self.on_event(self.plan.work[event.work].problem, event)


def watch(argv: list[str], env: dict[str, str], where: Path, on_event: OnEvent, of: Watched) -> Ended:
    """Runs a launcher and follows its journal. Raises KeyboardInterrupt, the launcher killed, once ``of.stop`` is
    set, and OutOfTime in the same way; a run that winds down lets it finish the configuration it is at."""
    tail = JournalTail(where / "journal.jsonl", Plan.read(where / "plan.json"), on_event)

    def heartbeat() -> object:
        if of.stop.is_set():
            raise KeyboardInterrupt
        if tail.plan.stage == VERIFY and 0 < tail.plan.deadline < time.time() - LATE_CHECK_S:
            raise OutOfTime
        if of.wind_down():
            (where / STOP_FILE).touch()
        return tail.beat()

    def limit_s() -> float:
        return of.launch_limit_s if tail.running else START_LIMIT_S

    return run_watched(argv, env, where / "launcher.log", heartbeat=heartbeat, stall_limit_s=limit_s)


def export(argv: list[str], env: dict[str, str], where: Path, of: Watched) -> Ended:
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
