"""The GPU that this process uses through torch, if any. Nothing here imports torch before it is used."""

from __future__ import annotations

import contextlib
import sys

# The flush reads so many times the L2; at least this much also hides the host's work for a launch.
FLUSH_L2_TIMES = 2
LEAST_FLUSH_BYTES = 256 * 2**20


def gpu_in_use() -> bool:
    """Whether this process has used a GPU through torch; imports nothing."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())


def gpu_is_there() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def wait() -> None:
    """Until the GPU has done what this process launched; raises what its kernels raised."""
    if gpu_in_use():
        sys.modules["torch"].cuda.synchronize()


def free_memory() -> None:
    """Gives memory of the GPU back that nothing holds."""
    if gpu_in_use():
        sys.modules["torch"].cuda.empty_cache()


def gpu_held() -> contextlib.AbstractContextManager[None]:
    """Holds the lock of the GPU that this process uses."""
    import torch

    from gemm_tuner.measure import probe
    from gemm_tuner.measure.device import driver_name, lock_name
    from gemm_tuner.system import gpu_lock

    number = torch.cuda.current_device()
    gpu = probe.gpus()[number]
    return gpu_lock.held([lock_name(gpu, driver_name(gpu, str(number)))])


def flush_bytes() -> int:
    """What a flush reads, so that the L2 of the current GPU holds nothing else."""
    import torch

    l2_bytes = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0)
    return max(LEAST_FLUSH_BYTES, FLUSH_L2_TIMES * int(l2_bytes))
