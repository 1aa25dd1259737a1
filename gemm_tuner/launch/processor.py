"""The processor that kernels run on, as torch knows it: a GPU, or this machine's CPU."""

from __future__ import annotations

import platform
from typing import Protocol


class Processor(Protocol):
    """name: of the device, for the journal."""

    @property
    def name(self) -> str: ...

    def wait(self) -> None:
        """Until all that was launched has ended."""

    def free_memory(self) -> None:
        """Gives memory back that nothing holds."""

    def start_recording(self) -> None:
        """Profilers that record a range begin here."""

    def stop_recording(self) -> None: ...


class Gpu:
    """The current GPU."""

    def __init__(self) -> None:
        import torch

        self._cuda, self.wait = torch.cuda, torch.cuda.synchronize
        self.free_memory = torch.cuda.empty_cache

    @property
    def name(self) -> str:
        return str(self._cuda.get_device_name())

    def start_recording(self) -> None:
        self._cuda.profiler.start()

    def stop_recording(self) -> None:
        self._cuda.profiler.stop()


class Cpu:
    """A call has ended when it returns: there is nothing to wait for, and nothing that another process records."""

    @property
    def name(self) -> str:
        return platform.processor() or platform.machine()

    def wait(self) -> None: ...

    def free_memory(self) -> None: ...

    def start_recording(self) -> None: ...

    def stop_recording(self) -> None: ...


def processor_of(device: str) -> Processor:
    """device: torch's, "cuda" or "cpu"."""
    return Cpu() if device == "cpu" else Gpu()
