"""The GPU that this process uses through torch, if any. torch is not imported unless it is already in use."""

from __future__ import annotations

import contextlib
import os
import sys

from gemm_tuner.core.errors import EnvironmentFault

# A flush reads this many times the size of L2, and at least this much, which also hides the host's launch overhead.
FLUSH_L2_TIMES = 2
LEAST_FLUSH_BYTES = 256 * 2**20


def gpu_in_use() -> bool:
    """Whether this process has used a GPU through torch, without importing it."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())


def gpu_is_there() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def wait() -> None:
    """Waits until the GPU has finished all launches of this process; raises errors of kernels."""
    if gpu_in_use():
        sys.modules["torch"].cuda.synchronize()


def free_memory() -> None:
    """Frees unused GPU memory."""
    if gpu_in_use():
        sys.modules["torch"].cuda.empty_cache()


def require_shared(where: str, hint: str) -> None:
    """Raises EnvironmentFault for a GPU that only one process may use at a time: not others beside this one."""
    from gemm_tuner.measure.device import visible_gpu
    from gemm_tuner.measure.machine_check.gpus import are_shared

    if not are_shared("cuda", [visible_gpu("cuda", 0, os.environ)]):
        what = "needs a GPU that several processes may use, and its compute mode is exclusive"
        raise EnvironmentFault(what, where=where, hint=f"sudo nvidia-smi -c DEFAULT, or {hint}")


def gpu_held() -> contextlib.AbstractContextManager[None]:
    """Holds the lock of the GPU that this process uses."""
    import torch

    from gemm_tuner.measure import probe
    from gemm_tuner.measure.device import lock_name_here
    from gemm_tuner.system import gpu_lock

    return gpu_lock.held([lock_name_here(probe.gpus()[torch.cuda.current_device()])])


def flush_bytes() -> int:
    """The number of bytes that a flush reads to evict everything else from L2."""
    import torch

    l2_bytes = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0)
    return max(LEAST_FLUSH_BYTES, FLUSH_L2_TIMES * int(l2_bytes))
