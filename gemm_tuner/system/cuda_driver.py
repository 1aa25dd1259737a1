"""The GPUs of this process from NVIDIA's driver, as torch lists them: importing torch to ask takes seconds."""

from __future__ import annotations

import ctypes
import uuid
from dataclasses import dataclass
from typing import Any

LIBRARY = "libcuda.so.1"
NAME_BYTES = 256
# CUdevice_attribute (cuda.h).
NUM_SMS, PCI_BUS, PCI_DEVICE, L2_BYTES, PCI_DOMAIN, MAJOR, MINOR, SHARED_MEMORY_BYTES = 16, 33, 34, 38, 50, 75, 76, 97


class CudaError(Exception):
    """There is no driver, or a call of it failed."""


@dataclass(frozen=True, slots=True)
class CudaGpu:
    """A GPU. pci: such as "0000:c3:00"."""

    uuid: str
    pci: str
    name: str
    arch: str
    num_sms: int
    memory_bytes: int
    l2_bytes: int
    shared_memory_bytes: int


class Driver:
    """The driver's library, which numbers the GPUs that CUDA_VISIBLE_DEVICES leaves visible."""

    def __init__(self) -> None:
        """Raises CudaError."""
        try:
            self._library: Any = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CudaError(str(error)) from error
        self._must("cuInit", 0)

    def _must(self, function: str, *arguments: Any) -> None:
        try:
            status = getattr(self._library, function)(*arguments)
        except AttributeError as error:
            raise CudaError(f"the driver has no {function}") from error
        if status != 0:
            raise CudaError(f"{function}: error {status}")

    def _number(self, function: str, *arguments: Any) -> int:
        """What a function writes to its first argument."""
        value = ctypes.c_int()
        self._must(function, ctypes.byref(value), *arguments)
        return value.value

    def cuda_major(self) -> int:
        """The newest major version of CUDA whose programs the driver runs."""
        return self._number("cuDriverGetVersion") // 1000

    def gpus(self) -> list[CudaGpu]:
        """Raises CudaError, also for a part of a GPU, of which the driver's versions tell different things."""
        return [self._gpu(self._number("cuDeviceGet", index)) for index in range(self._number("cuDeviceGetCount"))]

    def _gpu(self, device: int) -> CudaGpu:
        def attribute(which: int) -> int:
            return self._number("cuDeviceGetAttribute", which, device)

        name, memory = ctypes.create_string_buffer(NAME_BYTES), ctypes.c_size_t()
        self._must("cuDeviceGetName", name, NAME_BYTES, device)
        self._must("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        whole, own = self._uuid("cuDeviceGetUuid", device), self._uuid("cuDeviceGetUuid_v2", device)
        if whole != own:
            raise CudaError("a part of a GPU")
        return CudaGpu(
            uuid=f"GPU-{own}",
            pci=f"{attribute(PCI_DOMAIN):04x}:{attribute(PCI_BUS):02x}:{attribute(PCI_DEVICE):02x}",
            name=name.value.decode("utf-8", "replace"),
            arch=f"sm_{attribute(MAJOR)}{attribute(MINOR)}",
            num_sms=attribute(NUM_SMS),
            memory_bytes=memory.value,
            l2_bytes=attribute(L2_BYTES),
            shared_memory_bytes=attribute(SHARED_MEMORY_BYTES),
        )

    def _uuid(self, function: str, device: int) -> uuid.UUID:
        found = (ctypes.c_ubyte * 16)()
        self._must(function, ctypes.byref(found), device)
        return uuid.UUID(bytes=bytes(found))
