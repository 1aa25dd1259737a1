"""A factory whose configurations fail in all ways: imports little, so that a process that builds it starts soon."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from hang_clock import note


def factory(size: int, how: str = "right", at: str = "build") -> Callable[[], int]:
    if at == "build":
        fail(how)

    def kernel() -> int:
        if at == "launch":
            fail(how)
        return size + (how == "wrong")

    kernel.params = []  # type: ignore[attr-defined]
    kernel.out_idx = None  # type: ignore[attr-defined]
    return kernel


def taking(how: str = "right", at: str = "launch") -> Callable[[int], int]:
    """A factory of kernels that take a number."""
    kernel = factory(0, how, at)

    def plus(number: int) -> int:
        return number + kernel()

    plus.params, plus.out_idx = None, None  # type: ignore[attr-defined]
    return plus


def fail(how: str) -> None:
    if how == "hangs":
        # Holds the GIL's owner in C, where no signal handler of Python runs.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        note()
        threading.Event().wait()
    if how == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exits":
        os._exit(3)
    if how == "raises":
        raise ValueError("too many threads")


def supplied() -> list[int]:
    return [7]


def numbered(number: int) -> list[int]:
    return [number]


def expected() -> int:
    return 7
