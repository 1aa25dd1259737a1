"""When a process began, from Linux's /proc.

Not from psutil: its start time is a time of day, which changes when the clock is set.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

ENDED = ("Z", "X")  # states of a process that has ended and is not waited for yet


def start_ticks(pid: int) -> int | None:
    """The clock ticks from the boot of the system to the start of a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ENDED else int(fields[19])


def began() -> float:
    """time.monotonic() when this process began; now, where the system does not tell."""
    now, ticks = time.monotonic(), start_ticks(os.getpid())
    if ticks is None:
        return now
    return now - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
