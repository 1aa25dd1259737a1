"""The cores that this process may run on."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """How many cores this process may run on: a scheduler such as Slurm, or taskset, may allow fewer than there are.

    The quota of a container is not looked at; the subcommand check says it.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
