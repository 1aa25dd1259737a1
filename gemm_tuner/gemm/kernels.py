"""Launches of a GEMM with operands that have no memory, for compiling."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from gemm_tuner.core.workload import Launch
from gemm_tuner.gemm.operands import Operands
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.scratch import call_size
from gemm_tuner.languages.triton.scratch import STAND_IN_SMS, Scratch
from gemm_tuner.languages.triton.scripts import ShapeOnly


def shape_only_calls(script: ModuleType, config: dict[str, Any], problem: GemmProblem) -> list[Launch]:
    """The launches of one GEMM with operands that have no memory."""
    size = call_size(problem)
    elements, locks = script.scratch(config, size, STAND_IN_SMS)
    scratch = Scratch(
        ShapeOnly("fp32", elements) if elements else None,
        ShapeOnly("int32", locks) if locks else None,
    )
    launches: list[Launch] = script.calls(config, size, shape_only_operands(problem), scratch, STAND_IN_SMS)
    return launches


def shape_only_operands(problem: GemmProblem) -> Operands:
    """Operands of the right types and extents, without memory."""
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
