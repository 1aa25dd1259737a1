"""The memory limit of a compile worker: a share of the machine's memory, so that one worker cannot starve the
others."""

from __future__ import annotations

import sys

import psutil

from gemm_tuner.system.control_groups import memory_limit_bytes

GIB = 2**30
# LLVM and ptxas need a few hundred MiB for the largest kernels of the shipped templates.
LEAST_BYTES, MOST_BYTES = 2 * GIB, 16 * GIB


def share_bytes(workers: int) -> int:
    """Bytes that each of ``workers`` may allocate beyond its size at the start: an equal share of the memory of the
    machine or container, but at least LEAST_BYTES, so that no ordinary compilation fails."""
    total = int(psutil.virtual_memory().total)
    total = min(total, memory_limit_bytes() or total)
    return min(MOST_BYTES, max(LEAST_BYTES, total // max(1, workers)))


def limit(more_bytes: int) -> None:
    """Limits the address space of this process and its children to its present size plus ``more_bytes``."""
    if sys.platform != "linux":
        return
    import resource

    wanted = psutil.Process().memory_info().vms + more_bytes
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, most))
