"""Whether processes have had their time, or still wait for a core or a disk of a busy machine."""

from __future__ import annotations

import contextlib
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


class Spent:
    """CPU time of a process, which is looked for once: that takes longer than to read the time."""

    def __init__(self, pid: int) -> None:
        self._process: psutil.Process | None = None
        with contextlib.suppress(psutil.Error):
            self._process = psutil.Process(pid)

    def seconds(self) -> float:
        """The CPU time of the process and of its children that have ended; 0 if it has ended."""
        try:
            return _cpu_seconds(self._process) if self._process else 0.0
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
