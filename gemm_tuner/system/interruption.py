"""Ctrl-C and SIGTERM: once, the launch that runs is finished and saved; twice, the run ends within two seconds."""

from __future__ import annotations

import itertools
import os
import signal
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gemm_tuner.core.errors import EXIT_INTERRUPTED
from gemm_tuner.system import program
from gemm_tuner.system.processes import own_pids

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# After the second signal: for the run to end by itself, for example to read a long trace to its end.
LAST_RESORT_S = 1.2
NOTICE = "finishing what runs and saving it; once more to stop at once"


class Interruption:
    """Whether the user wants the run to end. The stages look at ``asked`` where they can stop."""

    def __init__(self) -> None:
        # Signals so far. A handler can be interrupted by the next signal: what it touches takes no lock.
        self._count = itertools.count()
        self._asked = False
        self._last_resort: threading.Timer | None = None

    @property
    def asked(self) -> bool:
        return self._asked

    def ask(self) -> None:
        """Asks for the end of the run, as the first signal does."""
        self._asked = True

    def check(self) -> None:
        """Raises KeyboardInterrupt when the run is to end."""
        if self.asked:
            raise KeyboardInterrupt

    def _heard(self, number: int, frame: Any) -> None:
        first = next(self._count) == 0
        self._asked = True
        if not first:
            if self._last_resort is None:
                self._last_resort = threading.Timer(LAST_RESORT_S, end_now)
                self._last_resort.daemon = True
                self._last_resort.start()
            raise KeyboardInterrupt
        # Not through sys.stderr: a handler that interrupts its write may not write to it ("reentrant call").
        text = f"{program.name()}: {signal.Signals(number).name}: {NOTICE}"
        with suppress(OSError):
            if os.isatty(2) and (width := os.get_terminal_size(2).columns) > 0:
                text = textwrap.fill(text, width, break_on_hyphens=False)
            os.write(2, f"\n{text}\n".encode())

    @contextmanager
    def listening(self) -> Iterator[Interruption]:
        """Takes the signals while the block runs; outside the main thread nothing is taken."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._heard) for number in SIGNALS}
        try:
            yield self
        finally:
            if self._last_resort is not None:
                self._last_resort.cancel()
            for number, handler in before.items():
                signal.signal(number, handler)


def end_now() -> None:
    """Kills this process and all that it started. Stored results survive this at any moment."""
    for pid in own_pids() - {os.getpid()}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with suppress(OSError):
        os.write(2, b"\ninterrupted; what was found is kept\n")
    os._exit(EXIT_INTERRUPTED)
