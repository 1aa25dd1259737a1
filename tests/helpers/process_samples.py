"""Whether a process is still there."""

from __future__ import annotations

import time
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends(pid: int) -> bool:
    """Whether a killed process is gone; the kernel may take a moment for it."""
    deadline = time.monotonic() + 120
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)
