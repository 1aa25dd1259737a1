"""Ctrl-C and SIGTERM: once, the launch that runs is finished and saved; twice, the run ends at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTICE = "finishing what runs and saving it; once more to stop at once"


class Interruption:
    """Whether the person at the keyboard wants the run to end. Others look at ``asked`` where they can stop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def asked(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Raises KeyboardInterrupt when the run is to end."""
        if self.asked:
            raise KeyboardInterrupt

    def _heard(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self._event.set()
        # Not through sys.stderr: a handler that interrupts its write may not write to it ("reentrant call").
        with suppress(OSError):
            os.write(2, f"\ntune_gemm.py: {signal.Signals(number).name}: {NOTICE}\n".encode())

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
            for number, handler in before.items():
                signal.signal(number, handler)
