"""Takes the place of the module ``pynvml``: answers what was recorded of GPUs, and as NVML does where nothing was."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest


class NVMLError(Exception):
    """As NVML's own."""


@dataclass
class Gpu:
    """What NVML answers by function name; a function that is not there is not supported."""

    uuid: str
    answers: dict[str, Any] = field(default_factory=dict)


def memory(mib: int) -> SimpleNamespace:
    return SimpleNamespace(used=mib << 20)


def process(pid: int, mib: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib << 20)


def h200(uuid: str = "GPU-e75930be", **changes: Any) -> Gpu:
    """An H200 at rest, driver 580.159.04; changes: by the name of the function without "nvmlDeviceGet"."""
    at_rest = {
        "Name": "NVIDIA H200",
        "ClockInfo": 375,
        "MaxClockInfo": 1980,
        "ApplicationsClock": 1980,
        "DefaultApplicationsClock": 1980,
        "CurrentClocksThrottleReasons": 0x1,
        "MemoryInfo": memory(0),
        "UtilizationRates": SimpleNamespace(gpu=0),
        "MigMode": [0, 0],
        "PersistenceMode": 1,
        "PowerUsage": 76_000,
        "Temperature": 31,
        "ComputeRunningProcesses": [],
    }
    return Gpu(uuid, {**at_rest, **changes})


class Recording:
    """A stand-in for the library. init_error: of a machine without a driver. said: what was opened and closed."""

    NVMLError = NVMLError
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 0, 1, 0

    def __init__(self, *gpus: Gpu, init_error: str = "") -> None:
        self.gpus, self.init_error, self.said = gpus, init_error, list[str]()

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NVMLError(self.init_error)
        self.said.append("init")

    def nvmlShutdown(self) -> None:
        self.said.append("shutdown")

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        raise NVMLError("Not Found")

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> str:
        return gpu.uuid

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def answer(gpu: Gpu, *_: Any) -> Any:
            if name.removeprefix("nvmlDeviceGet") not in gpu.answers:
                raise NVMLError("Not Supported")
            return gpu.answers[name.removeprefix("nvmlDeviceGet")]

        return answer


def install(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, init_error: str = "") -> Recording:
    import sys

    recording = Recording(*gpus, init_error=init_error)
    monkeypatch.setitem(sys.modules, "pynvml", recording)
    return recording
