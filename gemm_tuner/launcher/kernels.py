"""Loads generated scripts and turns their launches into warm-ups or real launches."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from gemm_tuner.dtypes import DTYPES
from gemm_tuner.records import GemmProblem

Launch = tuple[str, Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]


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

        self.dtype = getattr(tl, {"int32": "int32"}.get(dtype, "") or DTYPES[dtype].torch_name)
        self._bytes = elements * (4 if dtype == "int32" else DTYPES[dtype].size_bytes)

    def data_ptr(self) -> int:
        return 0

    def ptr_range(self) -> int:
        return self._bytes


def shape_only_calls(script: ModuleType, config: dict[str, Any], problem: GemmProblem) -> list[Launch]:
    """The launches of one GEMM with no memory behind them, for compiling."""
    m, n, k = size = (problem.m, problem.n, problem.k)
    workspace_elements = script.workspace_elements(config, size)
    launches: list[Launch] = script.calls(
        config,
        size,
        ShapeOnly(problem.dtype_a, m * k),
        ShapeOnly(problem.dtype_b, k * n),
        ShapeOnly(problem.dtype_c, m * n),
        ShapeOnly(problem.dtype_c, n) if problem.has_bias else None,
        ShapeOnly("fp32", workspace_elements) if workspace_elements else None,
    )
    return launches


def launch_all(launches: Iterable[Launch]) -> None:
    """Starts the kernels of one call; does not wait for them."""
    for _, kernel, grid, positional, options in launches:
        kernel[grid](*positional, **options)
