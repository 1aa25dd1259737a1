"""What a generated GEMM script is called with beside its operands: the size, and scratch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.scratch import Scratch, partial_sums, zero_locks


def call_size(problem: GemmProblem) -> tuple[int, int, int, int]:
    """(M, N, K, batch), as generated scripts take it."""
    return problem.m, problem.n, problem.k, problem.batch


def make_scratch(
    script: ModuleType, config: dict[str, Any], problem: GemmProblem, device: str, num_sms: int
) -> Scratch:
    """Fresh scratch of one call."""
    elements, locks = script.scratch(config, call_size(problem), num_sms)
    return Scratch(partial_sums(elements, device), zero_locks(locks, device))
