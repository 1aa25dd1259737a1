"""The processor that kernels run on, as torch knows it: a GPU, or this machine's CPU."""

from __future__ import annotations

import platform
from typing import Any, Protocol

from gemm_tuner.launch.placement import Placement


class Processor(Protocol):
    """name: of the device, for the journal. torch_version: "" where torch is not needed.

    idles: whether its clocks fall while it has nothing to do.
    """

    @property
    def name(self) -> str: ...

    @property
    def torch_version(self) -> str: ...

    @property
    def idles(self) -> bool: ...

    def placement(self, seed: int, process: int) -> Placed:
        """Moves operands in memory, to other places in each process of finals."""

    def wait(self) -> None:
        """Until all that was launched has ended."""

    def free_memory(self) -> None:
        """Gives memory back that nothing holds."""

    def start_recording(self) -> None:
        """Profilers that record a range begin here."""

    def stop_recording(self) -> None: ...


class Placed(Protocol):
    def moved(self, operands: Any) -> Any:
        """The same operands elsewhere in memory."""


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

    def placement(self, seed: int, process: int) -> Placed:
        return Placement(seed, process, "cuda")

    def start_recording(self) -> None:
        self._cuda.profiler.start()

    def stop_recording(self) -> None:
        self._cuda.profiler.stop()


class Cpu:
    """A call has ended when it returns: there is nothing to wait for, and nothing that another process records.

    Operands stay where they were allocated: the operating system places the memory of each process elsewhere.
    """

    idles = False
    torch_version = ""

    @property
    def name(self) -> str:
        return platform.processor() or platform.machine()

    def placement(self, seed: int, process: int) -> Placed:
        return self

    def moved(self, operands: Any) -> Any:
        return operands

    def wait(self) -> None: ...

    def free_memory(self) -> None: ...

    def start_recording(self) -> None: ...

    def stop_recording(self) -> None: ...


def processor_of(device: str) -> Processor:
    """device: torch's, "cuda" or "cpu"."""
    return Cpu() if device == "cpu" else Gpu()
