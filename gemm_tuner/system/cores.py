"""The cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

from gemm_tuner.system import control_groups


def usable_cores(root: Path = control_groups.ROOT) -> int:
    """How many cores this process may use: a scheduler such as Slurm, taskset or a container's quota, in which a part
    of a core counts as one, may allow fewer than there are. root: has proc and sys."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, math.ceil(control_groups.core_limit(root) or cores))
