"""Makes host code see a GPU when there is none, with the properties of the architecture's space file. Needs torch and
Triton."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from gemm_tuner.core.records import Device
from gemm_tuner.hosts.host_errors import HostError
from gemm_tuner.languages.triton import described_driver
from gemm_tuner.languages.triton.described_driver import capability
from gemm_tuner.system.replaced import replaced

# Versions for host code that parses them; they do not affect compilation.
CUDA_VERSION, HIP_VERSION = "12.8", "6.4.0"


def torch_properties(device: Device) -> Any:
    """Device properties by the names of ``torch.cuda.get_device_properties``."""
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
    """A context in which torch.cuda and Triton's driver report the described GPU, without opening one."""
    import torch

    driver = described_driver.in_place(device)
    stream = SimpleNamespace(cuda_stream=0, synchronize=nothing, wait_stream=nothing)
    is_hip = device.target.backend == "hip"
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_name": device.name,
        "get_device_properties": torch_properties(device), "get_device_capability": capability(device.target.arch),
        "current_stream": stream, "default_stream": stream, "synchronize": None, "set_device": None,
        "empty_cache": None, "manual_seed": None, "manual_seed_all": None,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name, value in answers.items():
            stack.enter_context(replaced(torch.cuda, name, answering(value)))
        stack.enter_context(replaced(torch.version, "hip", HIP_VERSION if is_hip else None))
        stack.enter_context(replaced(torch.version, "cuda", None if is_hip else CUDA_VERSION))
        stack.enter_context(replaced(torch, "Generator", generator_on_cpu(torch.Generator)))
        stack.enter_context(replaced(torch.cuda, "Event", StandInEvent))
        for name in ("device", "device_of", "stream"):
            stack.enter_context(replaced(torch.cuda, name, lambda *_, **__: contextlib.nullcontext()))
        stack.enter_context(driver)
        yield


def answering(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def nothing(*_: Any, **__: Any) -> None:
    return None


def generator_on_cpu(original: Any) -> Any:
    """A replacement for the type ``torch.Generator`` that creates a CPU generator for the missing GPU."""

    class OnCpu(type):
        def __call__(cls, device: Any = "cpu") -> Any:
            return original("cpu")

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

    return OnCpu("Generator", (), {})


class StandInEvent:
    """A replacement for ``torch.cuda.Event`` when nothing runs."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.record = self.wait = self.synchronize = nothing

    def elapsed_time(self, other: Any) -> float:
        raise HostError("times what it launches")
