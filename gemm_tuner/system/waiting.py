"""Whether processes have had their time, or still wait for a core of a busy machine."""

from __future__ import annotations

import os

import psutil

# Runnable, and waiting for a disk.
WAITING = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that have ended, seconds; 0 for one that has ended."""
    try:
        return _cpu_seconds(psutil.Process(pid))
    except psutil.Error:
        return 0.0


def group_waits(group: int) -> tuple[bool, float]:
    """(whether a process of a process group would go on if it had a core, CPU time of all of them in seconds). A
    process that sleeps waits for no core."""
    waits, total_s = False, 0.0
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group:
                total_s += _cpu_seconds(process)
                waits = waits or process.status() in WAITING
        except (psutil.Error, OSError):  # it has just ended
            continue
    return waits, total_s


def _cpu_seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system + spent.children_user + spent.children_system)
