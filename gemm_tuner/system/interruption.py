"""Ctrl-C and SIGTERM: the first signal lets the current launch finish and be saved; the second ends the run within two
seconds."""

from __future__ import annotations

import itertools
import os
import signal
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gemm_tuner.core.errors import EXIT_INTERRUPTED
from gemm_tuner.system import program
from gemm_tuner.system.processes import own_pids

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# After the second signal, the time that the run has to end by itself before it is killed.
LAST_RESORT_S = 1.2
# The time that an interrupted command has to leave the interpreter, whose threads and exit handlers it waits for.
EXIT_S = 0.3
# The time to find and kill what this process started. What is not found ends with this process (guarded.py).
FIND_S = 0.3
LAST_WORDS = "interrupted; what was found is kept"
NOTICE = "finishing what runs and saving it; once more to stop at once"


class Interruption:
    """Whether the user wants the run to end. Stages look at ``requested`` where they can stop."""

    def __init__(self) -> None:
        # Number of signals so far. A second signal can interrupt the handler, so what it uses must not take a lock.
        self._count = itertools.count()
        self._asked = False
        self._last_resort: threading.Timer | None = None

    @property
    def requested(self) -> bool:
        return self._asked

    def request(self) -> None:
        """Requests the end of the run, as the first signal does."""
        self._asked = True

    def check(self) -> None:
        """Raises KeyboardInterrupt if the end of the run was requested."""
        if self.requested:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: Any) -> None:
        first = next(self._count) == 0
        self._asked = True
        if not first:
            if self._last_resort is None:
                self._last_resort = _after(LAST_RESORT_S, end_now, f"\n{LAST_WORDS}\n")
            raise KeyboardInterrupt
        # Not through sys.stderr: if the handler interrupts a write to it, another write raises "reentrant call".
        text = f"{program.name()}: {signal.Signals(number).name}: {NOTICE}"
        with suppress(OSError):
            if os.isatty(2) and (width := os.get_terminal_size(2).columns) > 0:
                text = textwrap.fill(text, width, break_on_hyphens=False)
            os.write(2, f"\n{text}\n".encode())

    @contextmanager
    def listening(self) -> Iterator[Interruption]:
        """Handles the signals while the block runs; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield self
        finally:
            if self._last_resort is not None:
                self._last_resort.cancel()
                # One that has begun ends the process: what it kills first must not let the run end in another way.
                if self._last_resort.is_alive():
                    self._last_resort.join()
            for number, handler in before.items():
                signal.signal(number, handler)


def end_soon() -> None:
    """Ends this process after EXIT_S, unless it has ended by then: for one that has nothing left to do."""
    _after(EXIT_S, end_now, "")


def end_now(last_words: str) -> None:
    """Kills everything that this process started, as far as it is found within FIND_S, and this process. The results
    stored so far survive this at any moment."""
    _after(FIND_S, os._exit, EXIT_INTERRUPTED)
    for pid in own_pids() - {os.getpid()}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with suppress(OSError):
        os.write(2, last_words.encode())
    os._exit(EXIT_INTERRUPTED)


def _after(seconds: float, call: Callable[..., object], argument: object) -> threading.Timer:
    timer = threading.Timer(seconds, call, (argument,))
    timer.daemon = True
    timer.start()
    return timer
