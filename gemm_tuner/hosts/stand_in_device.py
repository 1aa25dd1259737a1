"""The GPU that host code sees where there is none: its properties by the architecture's space file. Needs torch and
Triton."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from gemm_tuner.core.records import Device
from gemm_tuner.hosts.host_errors import HostError
from gemm_tuner.hosts.launch_recorder import replaced
from gemm_tuner.languages.triton.compile_call import StandInDriver

# Host code takes them apart; nothing is compiled by them.
CUDA_VERSION, HIP_VERSION = "12.8", "6.4.0"


class DescribedDriver(StandInDriver):
    """Also what host code asks: ``driver.active.utils.get_device_properties(0)``."""

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
    """As Triton's drivers name them; clocks and the width of the memory bus are not known."""
    return {
        "max_shared_mem": device.shared_memory_bytes,
        "max_num_regs": device.registers_per_sm,
        "multiprocessor_count": device.num_sms,
        "warpSize": device.target.warp_size,
        "arch": device.target.arch,
    }


def capability(arch: str) -> tuple[int, int]:
    """(9, 0) for sm_90, 90 and gfx90a alike."""
    digits = "".join(one for one in arch.removeprefix("sm_").removeprefix("gfx") if one.isdigit()) or "0"
    return (int(digits[:1]), int(digits[1:2] or 0)) if arch.startswith("gfx") else (int(digits) // 10, int(digits) % 10)


def torch_properties(device: Device) -> Any:
    """As ``torch.cuda.get_device_properties`` names them."""
    major, minor = capability(device.target.arch)
    return SimpleNamespace(
        name=device.name, major=major, minor=minor, multi_processor_count=device.num_sms,
        total_memory=device.memory_bytes, L2_cache_size=device.l2_bytes, warp_size=device.target.warp_size,
        shared_memory_per_block=48 * 1024, shared_memory_per_block_optin=device.shared_memory_bytes,
        shared_memory_per_multiprocessor=device.shared_memory_per_sm_bytes,
        regs_per_multiprocessor=device.registers_per_sm, gcnArchName=device.target.arch,
        max_threads_per_multi_processor=device.max_warps_per_sm * device.target.warp_size,
    )  # fmt: skip


@contextlib.contextmanager
def described(device: Device) -> Iterator[None]:
    """What torch.cuda and Triton's driver say of the GPU; nothing of it opens one."""
    import torch
    import triton

    stream = SimpleNamespace(cuda_stream=0, synchronize=nothing, wait_stream=nothing)
    is_hip = device.target.backend == "hip"
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_name": device.name,
        "get_device_properties": torch_properties(device), "get_device_capability": capability(device.target.arch),
        "current_stream": stream, "default_stream": stream, "synchronize": None, "set_device": None,
        "empty_cache": None, "manual_seed": None, "manual_seed_all": None,
    }  # fmt: skip
    config = triton.runtime.driver
    with contextlib.ExitStack() as stack:
        for name, value in answers.items():
            stack.enter_context(replaced(torch.cuda, name, answering(value)))
        stack.enter_context(replaced(torch.version, "hip", HIP_VERSION if is_hip else None))
        stack.enter_context(replaced(torch.version, "cuda", None if is_hip else CUDA_VERSION))
        stack.enter_context(replaced(torch, "Generator", generator_on_cpu(torch.Generator)))
        stack.enter_context(replaced(torch.cuda, "Event", StandInEvent))
        for name in ("device", "device_of", "stream"):
            stack.enter_context(replaced(torch.cuda, name, lambda *_, **__: contextlib.nullcontext()))
        stack.enter_context(replaced(config, "_active", DescribedDriver(device)))
        yield


def answering(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def nothing(*_: Any, **__: Any) -> None:
    return None


def generator_on_cpu(original: Any) -> Any:
    """A type in place of ``torch.Generator``: of a GPU that is not there, it makes the CPU's."""

    class OnCpu(type):
        def __call__(cls, device: Any = "cpu") -> Any:
            return original("cpu")

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

    return OnCpu("Generator", (), {})


class StandInEvent:
    """``torch.cuda.Event`` where nothing runs."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.record = self.wait = self.synchronize = nothing

    def elapsed_time(self, other: Any) -> float:
        raise HostError("times what it launches")
