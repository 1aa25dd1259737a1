"""Launchers of one GPU that start side by side use the GPU one after another.

What comes before the GPU (a profiler's start, imports) and after it (a profiler's report) overlaps; operands and
kernels of two launchers never do. The context of a launcher whose profiler writes its report stays, and is idle.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterator
from pathlib import Path

# Lies beside the plan of a launcher that waits for its turn.
WAITING_FILE = "waiting"
# Descriptors are closed in ascending order when a process dies: its turn ends after the driver's files are closed.
HIGH_DESCRIPTOR = 512


class Turn:
    """Holds ``lock`` until ``end``, or until this process ends. Made once no other process holds it.

    folder: of the plan.
    """

    def __init__(self, lock: Path, folder: Path) -> None:
        opened = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        high = HIGH_DESCRIPTOR if most == resource.RLIM_INFINITY else min(HIGH_DESCRIPTOR, most // 2)
        self._held = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, high)
        os.close(opened)
        with _marked(folder / WAITING_FILE):
            fcntl.flock(self._held, fcntl.LOCK_EX)

    def end(self) -> None:
        """Lets the next launcher use the GPU: this one launches nothing more, and has freed its memory."""
        fcntl.flock(self._held, fcntl.LOCK_UN)


@contextlib.contextmanager
def _marked(path: Path) -> Iterator[None]:
    path.touch()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
