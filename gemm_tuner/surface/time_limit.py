"""A time limit for Python code in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimit(Exception):
    """The time limit was exceeded."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A context that raises TimeLimit in the block after ``seconds``; 0 for no limit.

    It uses the alarm signal, so it works only in the main thread, if no other alarm is set, and only after a call into
    C returns. Only the commands ``kernel`` and ``spec`` can end a hanging compiler or kernel.
    """
    is_possible = seconds > 0 and threading.current_thread() is threading.main_thread()
    if not is_possible or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeLimit(f"no end after {seconds:g} s; a larger timeout allows more")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
