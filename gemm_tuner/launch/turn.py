"""Locks by which launchers of one GPU that run at the same time take turns on the GPU.

The parts before the GPU (start of the profiler, imports) and after it (the profiler's report) overlap; operands and
kernels of two launchers never do. While a launcher's profiler writes the report, its context stays but is idle.
Launchers open their contexts before their turn, several at once, while none is timing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterator
from pathlib import Path

# A file in the plan's folder of a launcher that waits for the lock.
WAITING_FILE = "waiting"
# When a process dies, its descriptors are closed in ascending order. With a high one, the lock is released after the
# driver's files are closed.
HIGH_DESCRIPTOR = 512


class Turn:
    """Holds ``lock`` from ``take`` until ``end`` or the end of this process.

    The locks are of fcntl: the descriptor that holds one must have a high number, which filelock does not give it.

    folder: folder of the plan.
    _queue: a second lock, which the one of those that wait holds whose turn is next: so that it cannot be overtaken by
            one that gives way and then waits again.
    _quiet: a third one, which those that open the GPU share, and the one that times has alone.
    _ahead: a fourth one, which those share that have not had their turn and go ahead of others.
    """

    def __init__(self, lock: Path, folder: Path) -> None:
        self._waiting_file = folder / WAITING_FILE
        self._queue = os.open(lock.with_name(f"{lock.name}.queue"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._held, self._quiet = _opened_high(lock), _opened_high(lock.with_name(f"{lock.name}.quiet"))
        self._ahead = os.open(lock.with_name(f"{lock.name}.ahead"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def go_ahead(self) -> None:
        """From now on until this process has its turn, those that call ``stay_behind`` wait for that."""
        fcntl.flock(self._ahead, fcntl.LOCK_SH)

    def stay_behind(self) -> None:
        """Waits while any goes ahead that has not had its turn yet."""
        with _marked(self._waiting_file):
            fcntl.flock(self._ahead, fcntl.LOCK_EX)
            fcntl.flock(self._ahead, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """A block that opens the GPU, before this process's turn. Waits until none is timing."""
        with _marked(self._waiting_file):
            fcntl.flock(self._quiet, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._quiet, fcntl.LOCK_UN)

    def take(self) -> None:
        """Waits for this process's turn."""
        with _marked(self._waiting_file):
            fcntl.flock(self._queue, fcntl.LOCK_EX)
            fcntl.flock(self._held, fcntl.LOCK_EX)
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        fcntl.flock(self._ahead, fcntl.LOCK_UN)

    def begin_timing(self) -> None:
        """In its turn: waits for those that are opening the GPU. Others wait with that until this one's ``end``."""
        with _marked(self._waiting_file):
            fcntl.flock(self._quiet, fcntl.LOCK_EX)

    def end(self) -> None:
        """Releases the GPU to the next launcher. This process must have freed its memory and must not launch any
        more."""
        fcntl.flock(self._quiet, fcntl.LOCK_UN)
        fcntl.flock(self._held, fcntl.LOCK_UN)

    def give_way(self) -> None:
        """Lets the launcher that waits, if any does, have its turn, and waits for the next. This process must have
        freed its memory."""
        self.end()
        self.take()


def _opened_high(lock: Path) -> int:
    """A descriptor of a file, with a high number."""
    opened = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    high = HIGH_DESCRIPTOR if most == resource.RLIM_INFINITY else min(HIGH_DESCRIPTOR, most // 2)
    found = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, high)
    os.close(opened)
    return found


@contextlib.contextmanager
def _marked(path: Path) -> Iterator[None]:
    path.touch()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
