"""A driver of Triton's that describes a GPU without opening one, for host code that asks for its properties."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from gemm_tuner.core.records import Device
from gemm_tuner.languages.triton.compile_call import StandInDriver
from gemm_tuner.system.replaced import replaced


def in_place(device: Device) -> AbstractContextManager[None]:
    """A context in which Triton's active driver is the described one."""
    import triton

    return replaced(triton.runtime.driver, "_active", DescribedDriver(device))


class DescribedDriver(StandInDriver):
    """A driver that also has what host code uses: ``driver.active.utils.get_device_properties(0)``."""

    def __init__(self, device: Device) -> None:
        super().__init__(device.target)
        self.utils = SimpleNamespace(get_device_properties=lambda _: driver_properties(device))

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return capability(str(self._target.arch))


def driver_properties(device: Device) -> dict[str, Any]:
    """Device properties by the names of Triton's drivers; clocks and the memory bus width are unknown."""
    return {
        "max_shared_mem": device.shared_memory_bytes,
        "max_num_regs": device.registers_per_sm,
        "multiprocessor_count": device.num_sms,
        "warpSize": device.target.warp_size,
        "arch": device.target.arch,
    }


def capability(arch: str) -> tuple[int, int]:
    """The compute capability: (9, 0) for sm_90, 90 and gfx90a."""
    digits = "".join(one for one in arch.removeprefix("sm_").removeprefix("gfx") if one.isdigit()) or "0"
    return (int(digits[:1]), int(digits[1:2] or 0)) if arch.startswith("gfx") else (int(digits) // 10, int(digits) % 10)
