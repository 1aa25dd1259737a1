"""Who else computes on the GPUs that are to be measured on: their work makes times wrong."""

from __future__ import annotations

from collections.abc import Sequence

from gemm_tuner.measure.machine_check import gpus as driver
from gemm_tuner.system.nvml import GpuProcess, NvmlError, opened
from gemm_tuner.system.processes import own_pids


def others(backend: str, gpus: Sequence[str]) -> list[GpuProcess]:
    """Processes on these GPUs that this process did not start; none where no driver tells of any.

    backend: 'cuda', then ``gpus`` are UUIDs or NVML's indices; 'hip', whose driver lists the users of all GPUs; or
    'cpu', which has no such users.
    """
    if backend == "cpu":
        return []
    if backend == "cuda":
        try:
            with opened() as nvml:
                found = [process for gpu in gpus for process in nvml.processes(gpu)]
        except NvmlError:
            return []
    else:
        found = [process for state in driver.amd()[:1] for process in state.processes]
    if not found:
        return []
    mine = own_pids()
    return [process for process in dict.fromkeys(found) if process.pid not in mine]


def sentence(processes: Sequence[GpuProcess]) -> str:
    """One line that names them."""
    named = ", ".join(
        f"{one.pid} ({one.name}{'' if one.memory_bytes is None else f', {one.memory_bytes >> 20} MiB'})"
        for one in processes
    )
    return f"other processes use the GPU, so times may be wrong: {named}"
