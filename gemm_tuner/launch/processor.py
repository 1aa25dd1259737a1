"""The processor that kernels run on: a GPU through torch, or this machine's CPU."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Sequence
from typing import Any, Protocol

from gemm_tuner.launch.placement import Placement
from gemm_tuner.system.cuda_driver import CudaError, Driver


class Processor(Protocol):
    """What a launcher needs of a processor.

    name:          name of the device, for the journal.
    torch_version: "" if torch is not used.
    idles:         whether its clocks drop while it is idle.
    """

    @property
    def name(self) -> str: ...

    @property
    def torch_version(self) -> str: ...

    @property
    def idles(self) -> bool: ...

    def start_driver(self) -> None:
        """Does once what a process needs before it can open the GPU and what disturbs nobody who is timing: it makes no
        context. What fails here fails again, and is reported, when the GPU is opened."""

    def placement(self, seed: int, process: int) -> Placed:
        """Returns what moves operands to addresses that differ between finals processes."""

    def wait(self) -> None:
        """Waits until everything that was launched has ended."""

    def free_memory(self) -> None:
        """Returns unused memory to the system."""

    def start_recording(self) -> None:
        """Begins the range that profilers with ``uses_capture_range`` record, which ends with the process
        if not by ``stop_recording``."""

    def stop_recording(self) -> None: ...


class Placed(Protocol):
    def moved(self, sets: Sequence[Any]) -> list[Any]:
        """Copies of sets of operands at other addresses."""


class Gpu:
    """The current GPU."""

    idles = True

    def __init__(self) -> None:
        import torch

        self.torch_version = torch.__version__
        self._cuda, self.wait = torch.cuda, torch.cuda.synchronize
        self.free_memory = torch.cuda.empty_cache

    @property
    def name(self) -> str:
        return str(self._cuda.get_device_name())

    def start_driver(self) -> None:
        with contextlib.suppress(CudaError):  # of ROCm, which has no such driver
            Driver()

    def placement(self, seed: int, process: int) -> Placed:
        return Placement(seed, process, "cuda")

    def start_recording(self) -> None:
        self._cuda.profiler.start()

    def stop_recording(self) -> None:
        self._cuda.profiler.stop()


class Cpu:
    """This machine's CPU. A call has ended when it returns, so there is nothing to wait for.

    Operands are not moved: the operating system already gives each process other addresses.
    """

    idles = False
    torch_version = ""

    @property
    def name(self) -> str:
        return platform.processor() or platform.machine()

    def start_driver(self) -> None: ...

    def placement(self, seed: int, process: int) -> Placed:
        return self

    def moved(self, sets: Sequence[Any]) -> list[Any]:
        return list(sets)

    def wait(self) -> None: ...

    def free_memory(self) -> None: ...

    def start_recording(self) -> None: ...

    def stop_recording(self) -> None: ...


def processor_of(device: str) -> Processor:
    """The processor for a torch device, "cuda" or "cpu"."""
    return Cpu() if device == "cpu" else Gpu()
