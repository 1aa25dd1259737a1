"""Loads generated scripts, stands in for their tensors when compiling, and launches their kernels."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.workload import Launch


def load_script(path: str) -> ModuleType:
    """Imports a generated script under a name of its own; needs Triton, no torch, no GPU."""
    spec = importlib.util.spec_from_file_location(f"generated_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python script")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ShapeOnly:
    """Stands for a tensor when compiling: a type, an aligned address and an extent in bytes.

    The extent matters on AMD, where Triton addresses buffers under 2 GiB with 32-bit offsets.
    """

    def __init__(self, dtype: str, elements: int) -> None:
        import triton.language as tl

        self.dtype = getattr(tl, DTYPES[dtype].triton_name)
        self._bytes = elements * DTYPES[dtype].size_bytes

    def data_ptr(self) -> int:
        return 0

    def ptr_range(self) -> int:
        return self._bytes


def launch_all(launches: Iterable[Launch]) -> None:
    """Starts the kernels of one call; does not wait for them."""
    for _, kernel, grid, positional, options in launches:
        kernel[grid](*positional, **options)
