"""The state of GPUs from their drivers: clocks, load, other processes. Each source is optional.

NVIDIA: NVML. AMD: the files of the amdgpu driver below /sys, which need no library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.system.input_files import text_in
from gemm_tuner.system.nvml import IDLE, PROHIBITED, SHARED, SLOWED, GpuProcess, Nvml, NvmlError, opened
from gemm_tuner.system.processes import own_pids

LOCKED, NOT_LOCKED, UNKNOWN = "locked", "not locked", "unknown"
MPS = "nvidia-cuda-mps"
_AMD_VENDOR = "0x1002"
_CURRENT_CLOCK = re.compile(r"(\d+)\s*Mhz\s*\*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU, with the driver's index, which may differ from torch's. None and "" mean unknown.

    clocks:  LOCKED, NOT_LOCKED or UNKNOWN.
    slowed:  why it now runs below its clocks, in words.
    memory_used_mib: by all processes. utilization_pct: percentage of time with a kernel running.
    compute_mode: of NVIDIA's driver (``system.nvml``).
    """

    index: int
    name: str
    vendor: str
    clocks: str = UNKNOWN
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    slowed: str = ""
    memory_used_mib: int | None = None
    utilization_pct: int | None = None
    mig: bool = False
    persistent: bool | None = None
    processes: tuple[GpuProcess, ...] = ()
    uuid: str = ""
    compute_mode: int = SHARED


def look(root: Path = Path("/")) -> tuple[GpuState, ...]:
    """All GPUs that any driver reports. root: the folder that contains sys and proc."""
    return (*nvidia(), *amd(root))


def nvidia() -> tuple[GpuState, ...]:
    """The GPUs that NVML reports; none without NVML."""
    try:
        with opened() as nvml:
            return tuple(_nvidia_gpu(nvml, index, uuid) for index, uuid in enumerate(nvml.uuids()))
    except NvmlError:
        return ()


def _nvidia_gpu(nvml: Nvml, index: int, uuid: str) -> GpuState:
    gpu = str(index)
    clock_mhz, highest_mhz = _or_none(nvml.sm_clock_mhz, gpu), nvml.max_sm_clock_mhz(gpu)
    reasons = _or_none(nvml.reasons, gpu) or 0
    used = nvml.memory_used_bytes(gpu)
    return GpuState(
        index=index,
        name=nvml.name(gpu),
        vendor="nvidia",
        clocks=_nvidia_clocks(clock_mhz, highest_mhz, nvml.application_clocks_mhz(gpu), reasons),
        sm_clock_mhz=clock_mhz,
        max_sm_clock_mhz=highest_mhz,
        slowed=", ".join(words for bit, words in SLOWED.items() if reasons & bit),
        memory_used_mib=None if used is None else used >> 20,
        utilization_pct=nvml.utilization_pct(gpu),
        mig=nvml.is_split(gpu),
        persistent=nvml.is_persistent(gpu),
        processes=tuple(nvml.processes(gpu)),
        uuid=uuid,
        compute_mode=nvml.compute_mode(gpu),
    )


def _or_none(question: Callable[[str], int], gpu: str) -> int | None:
    try:
        return question(gpu)
    except NvmlError:
        return None


def _nvidia_clocks(
    now: int | None, highest: int | None, applications: tuple[int | None, int | None], reasons: int
) -> str:
    """Whether the clocks are locked, which the driver does not report directly. NOT_LOCKED if the GPU is idle below its
    highest clock; LOCKED if application clocks differ from the defaults; else UNKNOWN."""
    chosen, default = applications
    if chosen and default and chosen != default:
        return LOCKED
    if reasons & IDLE and now and highest and now < highest / 2:
        return NOT_LOCKED
    return UNKNOWN


def _number(text: str) -> int | None:
    found = re.match(r"\d{1,12}", text)
    return int(found.group()) if found else None


def amd(root: Path = Path("/")) -> tuple[GpuState, ...]:
    """The GPUs that amdgpu's files describe; none without such a GPU."""
    cards = sorted(root.glob("sys/class/drm/card*/device/vendor"), key=lambda path: (len(str(path)), str(path)))
    mine = [path.parent for path in cards if path.parent.parent.name[4:].isdigit() and text_in(path) == _AMD_VENDOR]
    processes = tuple(_kfd_processes(root))
    return tuple(_amd_gpu(index, folder, processes) for index, folder in enumerate(mine))


def _amd_gpu(index: int, folder: Path, processes: tuple[GpuProcess, ...]) -> GpuState:
    """processes: of all AMD GPUs together, because the driver does not tell which GPU each one uses."""
    level = text_in(folder / "power_dpm_force_performance_level")
    steps = text_in(folder / "pp_dpm_sclk")
    clocks = [int(step) for step in re.findall(r"(\d+)\s*Mhz", steps, re.IGNORECASE)]
    now = _CURRENT_CLOCK.search(steps)
    used = _number(text_in(folder / "mem_info_vram_used"))
    return GpuState(
        index=index,
        name=text_in(folder / "product_name") or "AMD GPU",
        vendor="amd",
        clocks=UNKNOWN if not level else NOT_LOCKED if level == "auto" else LOCKED,
        sm_clock_mhz=int(now[1]) if now else None,
        max_sm_clock_mhz=max(clocks, default=None),
        memory_used_mib=None if used is None else used >> 20,
        utilization_pct=_number(text_in(folder / "gpu_busy_percent")),
        processes=processes,
    )


def _kfd_processes(root: Path) -> Iterable[GpuProcess]:
    """The processes that compute on AMD GPUs; memory is the sum over all GPUs."""
    for folder in sorted(root.glob("sys/class/kfd/kfd/proc/*")):
        if folder.name.isdigit():
            used = [_number(text_in(path)) or 0 for path in folder.glob("vram_*")]
            name = text_in(root / "proc" / folder.name / "comm") or "unknown"
            yield GpuProcess(int(folder.name), name, sum(used) if used else None)


def other_users(backend: str, gpus: Sequence[str]) -> list[GpuProcess]:
    """Processes on these GPUs that this process did not start; none if no driver reports any.

    backend: for 'cuda', ``gpus`` are UUIDs or NVML's indices; for 'hip' the driver lists processes of all GPUs; for
             'cpu'
    there are none.
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
        found = [process for state in amd()[:1] for process in state.processes]
    if not found:
        return []
    mine = own_pids()
    return [process for process in dict.fromkeys(found) if process.pid not in mine]


def are_shared(backend: str, gpus: Sequence[str]) -> bool:
    """Whether several processes may have contexts on each of these GPUs at once. gpus: as for ``other_users``."""
    if backend == "cuda":
        with suppress(NvmlError), opened() as nvml:
            return all(nvml.is_shared(gpu) for gpu in gpus)
    return True


def require_room(backend: str, gpus: Sequence[str], others: Sequence[GpuProcess]) -> None:
    """Raises EnvironmentFault for a compute mode that lets no process of ours use one of these GPUs.

    others: who uses them already. NVIDIA's MPS server holds an exclusive GPU for all that compute through it.
    """
    if backend != "cuda":
        return
    with suppress(NvmlError), opened() as nvml:
        modes = {gpu: nvml.compute_mode(gpu) for gpu in gpus}
        for gpu in [gpu for gpu, mode in modes.items() if mode == PROHIBITED]:
            raise EnvironmentFault(
                "its compute mode is Prohibited: no process may use it",
                where=f"GPU {gpu}",
                hint=f"sudo nvidia-smi -i {gpu} -c DEFAULT",
            )
        for gpu in [gpu for gpu, mode in modes.items() if mode != SHARED]:
            here = {process.pid for process in nvml.processes(gpu)}
            found = [one for one in others if one.pid in here]
            if found and not any(one.name.startswith(MPS) for one in found):
                named = ", ".join(f"{one.pid} ({one.name})" for one in found)
                raise EnvironmentFault(
                    f"its compute mode lets one process use it at a time, and {named} does",
                    where=f"GPU {gpu}",
                    hint=f"wait for it, choose another by --gpu_ids, or sudo nvidia-smi -i {gpu} -c DEFAULT",
                )


def users_sentence(processes: Sequence[GpuProcess]) -> str:
    """One line that names the processes."""
    named = ", ".join(
        f"{one.pid} ({one.name}{'' if one.memory_bytes is None else f', {one.memory_bytes >> 20} MiB'})"
        for one in processes
    )
    return f"other processes use the GPU, so times may be wrong: {named}"
