"""The cores that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """How many cores this process may use: a scheduler such as Slurm, or taskset, may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
