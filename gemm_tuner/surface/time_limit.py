"""A limit on the time of Python code in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimit(Exception):
    """The block took longer than it may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TimeLimit in the block after so many seconds; 0 is no limit.

    By the alarm signal: only the main thread can be limited, where nothing else has set an alarm, and a call into C
    ends first. A compiler or a kernel that hangs is ended by ``kernel`` and ``spec`` of the command line only.
    """
    is_possible = seconds > 0 and threading.current_thread() is threading.main_thread()
    if not is_possible or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeLimit(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
