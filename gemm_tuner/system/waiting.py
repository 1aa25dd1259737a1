"""Whether processes have had their time, or still wait for a core or a disk of a busy machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. runs: one of its processes would go on if it had a core. on_disk: one waits for a disk, which
    nothing ends but the disk. cpu_s: CPU time of all of them, seconds. A process that sleeps waits for neither."""

    runs: bool = False
    on_disk: bool = False
    cpu_s: float = 0.0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that have ended, seconds; 0 for one that has ended."""
    try:
        return _cpu_seconds(psutil.Process(pid))
    except psutil.Error:
        return 0.0


def look_at(group: int) -> Group:
    """The process group of this number."""
    states, total_s = set[str](), 0.0
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group:
                total_s += _cpu_seconds(process)
                states.add(process.status())
        except (psutil.Error, OSError):  # it has just ended
            continue
    return Group(psutil.STATUS_RUNNING in states, psutil.STATUS_DISK_SLEEP in states, total_s)


def _cpu_seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system + spent.children_user + spent.children_system)
