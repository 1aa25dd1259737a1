"""How much memory one compile may take: its worker's share of the machine's, so that one cannot starve the others."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import psutil

GIB = 2**30
# LLVM and ptxas take a few hundred MiB on the largest kernels of the shipped templates.
LEAST_BYTES, MOST_BYTES = 2 * GIB, 16 * GIB
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def share_bytes(workers: int) -> int:
    """What one of ``workers`` may take beside what it has when it starts: their part of this machine, or of what the
    container has of it, and never so little that an honest compile fails."""
    total = int(psutil.virtual_memory().total)
    for path in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number, and no limit
            total = min(total, int(Path(path).read_text(encoding="ascii")))
    return min(MOST_BYTES, max(LEAST_BYTES, total // max(1, workers)))


def limit(more_bytes: int) -> None:
    """Lets this process and those that it starts have ``more_bytes`` of address space beside what it has now."""
    if sys.platform != "linux":
        return
    import resource

    wanted = psutil.Process().memory_info().vms + more_bytes
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, most))
