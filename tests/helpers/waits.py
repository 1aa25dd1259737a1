"""Waits for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable

# Not reached unless what is waited for never comes.
LONGEST_S = 240.0


def wait_until(holds: Callable[[], bool]) -> None:
    """Returns as soon as this holds; fails the test where it does not come to hold."""
    deadline = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < deadline, "what the test waits for did not come"
        time.sleep(0.01)
