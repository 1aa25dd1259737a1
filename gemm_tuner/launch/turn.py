"""Launchers of one GPU that start side by side use the GPU one after another.

What comes before the GPU (a profiler's start, imports) and after it (a profiler's report) overlaps; contexts, memory
and kernels of two launchers never do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

# Lies beside the plan of a launcher that waits for its turn.
WAITING_FILE = "waiting"
# Descriptors are closed in ascending order when a process ends: the turn ends after the driver's files are closed.
HIGH_DESCRIPTOR = 512


def take_turn(lock: Path, folder: Path) -> None:
    """Waits until no other process holds ``lock``, and holds it until this process ends. folder: of the plan."""
    opened = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    held = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
    os.close(opened)
    with _marked(folder / WAITING_FILE):
        fcntl.flock(held, fcntl.LOCK_EX)


@contextlib.contextmanager
def _marked(path: Path) -> Iterator[None]:
    path.touch()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
