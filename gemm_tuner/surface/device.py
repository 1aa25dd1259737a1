"""The device of this process, for values that follow from it and for compiling without a GPU."""

from __future__ import annotations

from functools import lru_cache

from gemm_tuner.core.records import Device
from gemm_tuner.measure import probe
from gemm_tuner.measure.device import DEFAULT_ARCH, measured_device
from gemm_tuner.space import space
from gemm_tuner.system.installation import data_folder


@lru_cache(maxsize=1)
def current() -> Device:
    """The first GPU that torch sees, with what it says of itself; without one, the default architecture's."""
    gpus = probe.gpus()
    return measured_device(of_arch(gpus[0]["arch"]), gpus[0]) if gpus else of_arch(DEFAULT_ARCH)


@lru_cache(maxsize=8)
def of_arch(arch: str) -> Device:
    """The device that the architecture's space file, or its nearest relative's, describes. Raises UserError."""
    return space.load(space.space_path(data_folder("rules"), arch), arch).device
