"""Facts of GPUs from NVIDIA's driver. The only module that calls NVML (the package nvidia-ml-py).

Optional values are None if the GPU, the driver or the user's rights do not allow the query. Tests replace the module
``pynvml`` by a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gemm_tuner.system.processes import name_of

# Bits of NVML's clocks event reasons (nvml.h): idle, and the slow-downs that are not normal under load. The software
# power cap (0x4) is normal for a busy GPU and is left out.
IDLE = 0x1
# Compute modes: several processes may use a GPU, or none. The others are exclusive: one process at a time.
SHARED, PROHIBITED = 0, 2
SLOWED = {0x8: "hardware slowdown", 0x20: "heat, by the driver", 0x40: "heat, by the hardware", 0x80: "power brake"}


class NvmlError(Exception):
    """NVML is not installed, finds no driver, or refuses a query."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU. name: "unknown" if the driver does not tell. memory_bytes: None if unknown."""

    pid: int
    name: str
    memory_bytes: int | None = None


class Nvml:
    """An open connection to the driver. Parameters ``gpu`` are a UUID, or the driver's index as text."""

    def __init__(self) -> None:
        """Raises NvmlError when the library or the driver is missing."""
        try:
            import pynvml
        except ImportError as error:
            raise NvmlError("the package nvidia-ml-py is not installed") from error
        self._nvml: Any = pynvml
        self._must(pynvml.nvmlInit)

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _must(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls ``function``; raises NvmlError if the query fails."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            raise NvmlError(f"NVML: {error}") from error

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Calls the NVML function ``name``; None if the query fails."""
        try:
            return self._must(getattr(self._nvml, name), *arguments)
        except (NvmlError, AttributeError):
            return None

    def driver_version(self) -> str:
        return _text(self._ask("nvmlSystemGetDriverVersion"))

    def uuids(self) -> list[str]:
        """UUIDs in the order of the driver's index; "" for one that is unknown."""
        count = self._ask("nvmlDeviceGetCount") or 0
        handles = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        return [_text(self._ask("nvmlDeviceGetUUID", handle)) for handle in handles]

    def is_shared(self, gpu: str) -> bool:
        """Whether several processes may have contexts on the GPU at once."""
        return self.compute_mode(gpu) == SHARED

    def compute_mode(self, gpu: str) -> int:
        """SHARED where it is unknown, as for a MIG instance."""
        return int(self._ask("nvmlDeviceGetComputeMode", self._handle(gpu)) or SHARED)

    def _handle(self, gpu: str) -> Any:
        """Raises NvmlError if there is no such GPU."""
        if gpu.isdigit():
            return self._must(self._nvml.nvmlDeviceGetHandleByIndex, int(gpu))
        return self._must(self._nvml.nvmlDeviceGetHandleByUUID, gpu)

    def _physical(self, gpu: str) -> Any:
        """The handle of the whole GPU; a MIG instance has no clocks, power or temperature of its own."""
        handle = self._handle(gpu)
        if gpu.startswith("MIG-"):
            return self._must(self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)
        return handle

    def name(self, gpu: str) -> str:
        return _text(self._ask("nvmlDeviceGetName", self._handle(gpu)))

    def sm_clock_mhz(self, gpu: str) -> int:
        """Raises NvmlError when it is unknown."""
        return int(self._must(self._nvml.nvmlDeviceGetClockInfo, self._physical(gpu), self._nvml.NVML_CLOCK_SM))

    def max_sm_clock_mhz(self, gpu: str) -> int | None:
        return _number(self._ask("nvmlDeviceGetMaxClockInfo", self._physical(gpu), self._nvml.NVML_CLOCK_SM))

    def application_clocks_mhz(self, gpu: str) -> tuple[int | None, int | None]:
        """(application clock, its default), MHz; None for one that is unknown."""
        handle, kind = self._physical(gpu), self._nvml.NVML_CLOCK_GRAPHICS
        names = ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock")
        now, default = (_number(self._ask(name, handle, kind)) for name in names)
        return now, default

    def power_w(self, gpu: str) -> float:
        """Raises NvmlError when it is unknown."""
        return float(self._must(self._nvml.nvmlDeviceGetPowerUsage, self._physical(gpu))) / 1e3

    def temperature_c(self, gpu: str) -> float:
        """Raises NvmlError when it is unknown."""
        kind = self._nvml.NVML_TEMPERATURE_GPU
        return float(self._must(self._nvml.nvmlDeviceGetTemperature, self._physical(gpu), kind))

    def reasons(self, gpu: str) -> int:
        """The clocks event reasons as bits (see SLOWED). Raises NvmlError when they are unknown."""
        return int(self._must(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons, self._physical(gpu)))

    def memory_used_bytes(self, gpu: str) -> int | None:
        """Memory in use by all processes, without the driver's reserve if NVML reports it separately."""
        handle = self._physical(gpu)
        found = self._ask("nvmlDeviceGetMemoryInfo", handle, getattr(self._nvml, "nvmlMemory_v2", None))
        found = found or self._ask("nvmlDeviceGetMemoryInfo", handle)
        return None if found is None else int(found.used)

    def utilization_pct(self, gpu: str) -> int | None:
        """Percentage of the last second in which a kernel was running."""
        found = self._ask("nvmlDeviceGetUtilizationRates", self._physical(gpu))
        return None if found is None else int(found.gpu)

    def is_split(self, gpu: str) -> bool:
        """Whether the GPU is split into MIG instances."""
        return bool((self._ask("nvmlDeviceGetMigMode", self._physical(gpu)) or (0, 0))[0])

    def is_persistent(self, gpu: str) -> bool | None:
        found = self._ask("nvmlDeviceGetPersistenceMode", self._physical(gpu))
        return None if found is None else bool(found)

    def processes(self, gpu: str) -> list[GpuProcess]:
        """The processes that compute on a GPU or a MIG instance."""
        found = self._ask("nvmlDeviceGetComputeRunningProcesses", self._handle(gpu)) or []
        return [GpuProcess(one.pid, name_of(one.pid), _number(one.usedGpuMemory)) for one in found]


@contextmanager
def opened() -> Iterator[Nvml]:
    """A connection that is open while the block runs. Raises NvmlError if none can be made."""
    nvml = Nvml()
    try:
        yield nvml
    finally:
        nvml.close()


def driver_version() -> str:
    """The driver's version; "" without a driver."""
    try:
        with opened() as nvml:
            return nvml.driver_version()
    except NvmlError:
        return ""


def _text(answer: Any) -> str:
    """Text from the library, whose older versions return bytes."""
    return "" if answer is None else answer.decode() if isinstance(answer, bytes) else str(answer)


def _number(answer: Any) -> int | None:
    return None if answer is None else int(answer)
