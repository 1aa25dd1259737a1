"""Child processes that are supervised, and killed together with everything they started."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gemm_tuner.system import guarded, module_start
from gemm_tuner.system.start_time import start_ticks

TICK_S = 0.2
LOG_TAIL_LINES = 8
LOG_TAIL_BYTES = 64 * 1024
MARK = "GEMM_TUNER_MARK"
# The tuner process that a marked process belongs to: "<pid> <start time in clock ticks since boot>".
OWNER = "GEMM_TUNER_OWNER"
LOOK_S = 0.5
# Exit statuses of a process that a user, a batch system or the OOM killer killed: minus the signal's number, or 128
# plus it if a child of the process was killed.
KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FROM_OUTSIDE = frozenset(status for kill in KILLS for status in (-kill, 128 + kill))
# After this many kills from outside while a configuration was running, it is not run again.
MOST_CRASHES = 2


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. stalled: it was killed because it made no progress for the time allowed. unix_s: when."""

    exit_status: int
    stalled: bool
    seconds: float
    log_path: Path
    stall_limit_s: float = 0.0
    unix_s: float = field(default_factory=time.time)

    def how(self) -> str:
        """How it ended, for a message: ``exit status 1``, ``signal SIGSEGV``, ``nothing moved for 180 s``."""
        if self.stalled:
            return f"nothing moved for {self.stall_limit_s:g} s"
        return how_it_ended(self.exit_status)

    def log_tail(self) -> str:
        """The last lines that it printed, joined into one line for an error message."""
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - LOG_TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-LOG_TAIL_LINES:])


def how_it_ended(exit_status: int) -> str:
    """``exit status 1``, or ``signal SIGSEGV`` for a negative status."""
    if exit_status >= 0:
        return f"exit status {exit_status}"
    try:
        return f"signal {signal.Signals(-exit_status).name}"
    except ValueError:
        return f"signal {-exit_status}"


class Watched:
    """A command that runs in its own process group and writes its output to ``log_path``.

    Raises FileNotFoundError for a command that does not exist.
    """

    def __init__(self, argv: list[str], env: dict[str, str], log_path: Path) -> None:
        if shutil.which(argv[0], path=env.get("PATH")) is None:
            raise FileNotFoundError(2, "no such command", argv[0])
        self.log_path, self._mark = log_path, secrets.token_hex(8)
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                guarded_command(argv),
                env={**env, MARK: self._mark, OWNER: identity(os.getpid())},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def tell(self, line: str) -> None:
        """Writes a line to the command's standard input; does nothing when the command has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def close_stdin(self) -> None:
        """Closes the command's standard input."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(
        self,
        heartbeat: Callable[[], object],
        stall_limit_s: float | Callable[[], float],
        done: Callable[[], bool] = lambda: False,
        tick_s: float = TICK_S,
    ) -> Ended:
        """Waits until the command ends, or until ``done()`` is true; the exit status is then taken as 0.

        heartbeat:     called a few times a second; a changed value means that the command makes progress.
        stall_limit_s: if the heartbeat does not change for this long, the command and everything it started is killed.
                       A function is called anew each time, for a limit that depends on what the command is doing.
        """
        started = last_change = time.monotonic()
        seen: object = object()
        stalled = False
        limit_s = stall_limit_s() if callable(stall_limit_s) else stall_limit_s
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=tick_s)
            beat, now = heartbeat(), time.monotonic()
            status = self._process.returncode
            if status is not None or done():
                return Ended(status or 0, stalled, time.monotonic() - started, self.log_path, limit_s)
            if beat != seen:
                seen, last_change = beat, now
            elif now - last_change > (limit_s := stall_limit_s() if callable(stall_limit_s) else stall_limit_s):
                stalled = True
                kill_family(self._process.pid, self._mark)

    def kill(self) -> None:
        """Kills the command and everything it started. Processes that left the process group (nsys starts the profiled
        program in a new session) are found by a mark in their environment."""
        self.close_stdin()
        kill_family(self._process.pid, self._mark)
        self._process.wait()


def run_watched(
    argv: list[str],
    env: dict[str, str],
    log_path: Path,
    *,
    heartbeat: Callable[[], object],
    stall_limit_s: float | Callable[[], float],
) -> Ended:
    """Runs a command without standard input to its end; parameters as in ``Watched.wait``. An exception (Ctrl-C) kills
    the command and everything it started. Raises FileNotFoundError for a command that does not exist."""
    watched = Watched(argv, env, log_path)
    try:
        watched.close_stdin()
        return watched.wait(heartbeat, stall_limit_s)
    finally:
        watched.kill()


def guarded_command(argv: Sequence[str]) -> list[str]:
    """A command line that runs ``argv`` as a child that does not outlive this process, however this process ends."""
    return [sys.executable, "-I", "-S", guarded.__file__, str(os.getpid()), *argv]


def module_command(module: str) -> list[str]:
    """A command line that runs a module of this package, to be extended by its arguments. PYTHONPATH must lead to the
    package; what lies in the user's folder takes the place of no module."""
    return [sys.executable, module_start.__file__, module]


def kill_family(pid: int, mark: str) -> None:
    """Kills a process group and every process that carries the mark; does nothing when they have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for process in processes_with_variable(MARK, mark):
        with contextlib.suppress(psutil.Error):
            process.kill()


def identity(pid: int) -> str:
    """PID and start time in clock ticks since boot, so that a reused PID differs; "" when the process has ended."""
    ticks = start_ticks(pid)
    return "" if ticks is None else f"{pid} {ticks}"


def pid_of(process: str) -> int:
    """The PID of an ``identity``."""
    return int(process.split()[0])


def exit_with_tuner() -> None:
    """Starts a thread that ends this process, and all processes with its mark, when the tuner has ended.

    PR_SET_PDEATHSIG does not suffice here: a profiler may start the profiled program in another session under another
    parent.
    """
    owner, mark = os.environ.get(OWNER, ""), os.environ.get(MARK, "")
    if not owner or not mark:
        return  # started by hand

    def look() -> None:
        while identity(pid_of(owner)) == owner:
            time.sleep(LOOK_S)
        for process in processes_with_variable(MARK, mark):
            if process.pid != os.getpid():
                with contextlib.suppress(psutil.Error):
                    process.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=look, name="owner", daemon=True).start()


def processes_with_variable(name: str, value: str) -> list[psutil.Process]:
    """The processes whose environment has this variable, as far as this user may read it."""
    return [one for one in psutil.process_iter(["environ"]) if (one.info["environ"] or {}).get(name) == value]


def own_pids() -> set[int]:
    """PIDs of this process, of its descendants, and of what these started in other sessions (as profilers do)."""
    mine = psutil.Process()
    started = {one.pid for one in mine.children(recursive=True)}
    return {mine.pid} | started | {one.pid for one in processes_with_variable(OWNER, identity(mine.pid))}


def name_of(pid: int) -> str:
    """The name of a process; "unknown" when it has ended or is in another PID namespace."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "unknown"
