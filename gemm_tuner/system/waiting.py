"""Whether processes have had their time, or still wait for a core of a busy machine. Only Linux tells."""

from __future__ import annotations

import os
from pathlib import Path

# States in /proc: runnable, and waiting for a disk.
WAITING = "RD"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that have ended, seconds; 0 for one that has ended."""
    return _cpu_seconds(_fields(Path(f"/proc/{pid}/stat")))


def group_waits(group: int) -> tuple[bool, float]:
    """(whether a process of a process group would go on if it had a core, CPU time of all of them in seconds). A
    process that sleeps waits for no core."""
    found = [fields for path in Path("/proc").glob("[0-9]*/stat") if (fields := _fields(path))[2:3] == [str(group)]]
    return any(fields[0] in WAITING for fields in found), sum(map(_cpu_seconds, found))


def _fields(path: Path) -> list[str]:
    """State, parent, process group and what follows; empty for a process that has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(fields: list[str]) -> float:
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
