"""Waits for a profiler that ends its recording while the process that it records still runs."""

from __future__ import annotations

import time
from pathlib import Path

# nsys 2023.4 takes about three seconds, more on a loaded machine.
LIMIT_S = 20.0
LOOK_S = 0.05


def wait_until_written(recording: Path, limit_s: float = LIMIT_S) -> bool:
    """Waits until the profiler has written its recording, ``limit_s`` seconds at most; returns whether it has.

    nsys 2023.4 lost recordings of processes that ended while it ended the recording: then it cannot read what it wrote.
    """
    until = time.monotonic() + limit_s
    while not recording.exists():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True
