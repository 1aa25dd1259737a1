"""The device of this process, for derived values and for compilation without a GPU."""

from __future__ import annotations

from functools import lru_cache

from gemm_tuner.core.records import Device
from gemm_tuner.measure import probe
from gemm_tuner.measure.device import DEFAULT_ARCH, measured_device
from gemm_tuner.space import space
from gemm_tuner.system.installation import data_folder


@lru_cache(maxsize=1)
def current() -> Device:
    """The first GPU that torch sees, with its reported properties; without a GPU, the default architecture's device."""
    gpus = probe.gpus()
    return measured_device(of_arch(gpus[0]["arch"]), gpus[0]) if gpus else of_arch(DEFAULT_ARCH)


@lru_cache(maxsize=8)
def of_arch(arch: str) -> Device:
    """The device of the space file that is used for an architecture. Raises UserError."""
    return space.load(space.space_path(data_folder("rules"), arch), arch).device
