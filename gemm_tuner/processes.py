"""Child processes that can be watched and killed with everything they started."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TICK_S = 0.2
LOG_TAIL_LINES = 8
LOG_TAIL_BYTES = 64 * 1024
MARK = "GEMM_TUNER_MARK"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. ``stalled``: it was killed because nothing moved for the time allowed."""

    exit_status: int
    stalled: bool
    seconds: float
    log_path: Path
    stall_limit_s: float = 0.0

    def how(self) -> str:
        """How it ended, for a message: ``exit status 1``, ``signal SIGSEGV``, ``nothing moved for 180 s``."""
        if self.stalled:
            return f"nothing moved for {self.stall_limit_s:g} s"
        if self.exit_status >= 0:
            return f"exit status {self.exit_status}"
        try:
            return f"signal {signal.Signals(-self.exit_status).name}"
        except ValueError:
            return f"signal {-self.exit_status}"

    def log_tail(self) -> str:
        """The last lines that it printed, on one line, for an error message."""
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - LOG_TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-LOG_TAIL_LINES:])


def run_watched(
    argv: list[str],
    env: dict[str, str],
    log_path: Path,
    *,
    heartbeat: Callable[[], object],
    stall_limit_s: float,
    cwd: Path | None = None,
) -> Ended:
    """Runs a command in a process group of its own, its output in ``log_path``.

    ``heartbeat`` is called a few times a second; while the value it returns changes, the process is
    alive. When it stays the same for ``stall_limit_s`` the command is killed with all it started, those
    included that made a session of their own (nsys does so with what it profiles): they are known by a
    mark in their environment. All are killed too when this process leaves by an exception (Ctrl-C).
    Raises FileNotFoundError for a command that does not exist.
    """
    mark = secrets.token_hex(8)
    started = last_change = time.monotonic()
    seen: object = object()
    stalled = False
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            argv,
            env={**env, MARK: mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=TICK_S)
                beat, now = heartbeat(), time.monotonic()
                if process.returncode is not None:
                    break
                if beat != seen:
                    seen, last_change = beat, now
                elif now - last_change > stall_limit_s:
                    stalled = True
                    kill_family(process.pid, mark)
        finally:
            kill_family(process.pid, mark)
            process.wait()
    return Ended(process.returncode, stalled, time.monotonic() - started, log_path, stall_limit_s)


def kill_family(pid: int, mark: str) -> None:
    """Kills a process group and every process that carries the mark; nothing happens when they are gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for marked in marked_processes(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(marked, signal.SIGKILL)


def marked_processes(mark: str) -> list[int]:
    """The ids of the processes whose environment holds the mark (Linux; none elsewhere)."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found
