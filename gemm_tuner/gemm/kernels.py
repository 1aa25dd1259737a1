"""The arguments of a generated GEMM script, and placeholder operands for compilation."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from gemm_tuner.core.workload import Launch
from gemm_tuner.gemm.operands import Operands
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.scratch import STAND_IN_SMS, Scratch, partial_sums, zero_locks


def blank_calls(
    script: ModuleType, config: dict[str, Any], problem: GemmProblem, blank: Callable[[str, int], Any]
) -> list[Launch]:
    """The launches of one GEMM with placeholder operands, which ``blank(dtype, elements)`` creates."""
    size = call_size(problem)
    elements, locks = script.scratch(config, size, STAND_IN_SMS)
    scratch = Scratch(
        blank("fp32", elements) if elements else None,
        blank("int32", locks) if locks else None,
    )
    launches: list[Launch] = script.calls(config, size, blank_operands(problem, blank), scratch, STAND_IN_SMS)
    return launches


def blank_operands(problem: GemmProblem, blank: Callable[[str, int], Any]) -> Operands:
    """Placeholder operands of the right types and extents."""
    m, n, k, batch = call_size(problem)
    scales = [blank("fp32", rows * columns) for rows, columns in problem.scale_shapes]
    return Operands(
        a=blank(problem.dtype_a, batch * m * k),
        b=blank(problem.dtype_b, batch * k * n),
        c=blank(problem.dtype_c, batch * m * n),
        bias=blank(problem.dtype_c, n) if problem.bias else None,
        c_in=blank(problem.dtype_c, batch * m * n) if problem.reads_c else None,
        scale_a=scales[0] if scales else None,
        scale_b=scales[1] if scales else None,
        alpha=problem.alpha,
        beta=problem.beta,
    )


def call_size(problem: GemmProblem) -> tuple[int, int, int, int]:
    """(M, N, K, batch), the size argument of generated scripts."""
    return problem.m, problem.n, problem.k, problem.batch


def make_scratch(
    script: ModuleType, config: dict[str, Any], problem: GemmProblem, device: str, num_sms: int
) -> Scratch:
    """New scratch memory for one call."""
    elements, locks = script.scratch(config, call_size(problem), num_sms)
    return Scratch(partial_sums(elements, device), zero_locks(locks, device))
