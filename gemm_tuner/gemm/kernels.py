"""Loads generated scripts and turns their launches into warm-ups or real launches."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.operands import Operands
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.scratch import STAND_IN_SMS, Scratch, call_size

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

        self.dtype = getattr(tl, DTYPES[dtype].triton_name)
        self._bytes = elements * DTYPES[dtype].size_bytes

    def data_ptr(self) -> int:
        return 0

    def ptr_range(self) -> int:
        return self._bytes


def shape_only_calls(script: ModuleType, config: dict[str, Any], problem: GemmProblem) -> list[Launch]:
    """The launches of one GEMM with no memory behind them, for compiling."""
    size = call_size(problem)
    elements, locks = script.scratch(config, size, STAND_IN_SMS)
    scratch = Scratch(
        ShapeOnly("fp32", elements) if elements else None,
        ShapeOnly("int32", locks) if locks else None,
    )
    launches: list[Launch] = script.calls(config, size, shape_only_operands(problem), scratch, STAND_IN_SMS)
    return launches


def shape_only_operands(problem: GemmProblem) -> Operands:
    """Operands of the right types and extents, with no memory behind them."""
    m, n, k, batch = call_size(problem)
    scales = [ShapeOnly("fp32", rows * columns) for rows, columns in problem.scale_shapes]
    return Operands(
        a=ShapeOnly(problem.dtype_a, batch * m * k),
        b=ShapeOnly(problem.dtype_b, batch * k * n),
        c=ShapeOnly(problem.dtype_c, batch * m * n),
        bias=ShapeOnly(problem.dtype_c, n) if problem.bias else None,
        c_in=ShapeOnly(problem.dtype_c, batch * m * n) if problem.reads_c else None,
        scale_a=scales[0] if scales else None,
        scale_b=scales[1] if scales else None,
        alpha=problem.alpha,
        beta=problem.beta,
    )


def launch_all(launches: Iterable[Launch]) -> None:
    """Starts the kernels of one call; does not wait for them."""
    for _, kernel, grid, positional, options in launches:
        kernel[grid](*positional, **options)
