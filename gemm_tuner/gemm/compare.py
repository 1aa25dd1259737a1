"""Compares C with its reference, in blocks that fit the memory. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gemm_tuner.core.records import Verdict
from gemm_tuner.gemm.operands import torch_dtype
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.reference import ALL, error_bound

# Elements of A, B or C in one comparison: 0.5 GiB in float64.
COMPARE_ELEMENTS = 2**26


@dataclass(frozen=True, slots=True)
class Expected:
    """What rows of C are compared with, each (rows, n).

    values: the reference. bound: of the error. rounded: the values in dtype_c. nan: where the rounded values are NaN;
    None for nowhere. overflow: an infinity of dtype_c where a result within the bound overflows, zero elsewhere; None
    for nowhere.
    """

    values: Any
    bound: Any
    rounded: Any
    nan: Any
    overflow: Any

    @classmethod
    def of(cls, values: Any, slack: Any, problem: GemmProblem) -> Expected:
        """values, slack: as ``reference`` returns them."""
        import torch

        bound, kind = error_bound(values, slack, problem), torch_dtype(problem.dtype_c)
        rounded, farthest = values.to(kind), (values + bound.copysign(values)).to(kind)
        nan, infinite = rounded.isnan(), farthest.isinf()
        has_nan, overflows = torch.stack((nan.any(), infinite.any())).tolist()
        overflow = torch.where(infinite, farthest, torch.zeros_like(farthest)) if overflows else None
        return cls(values, bound, rounded, nan if has_nan else None, overflow)

    def tensors(self) -> list[Any]:
        """All of them, None for one that is not there."""
        return [self.values, self.bound, self.rounded, self.nan, self.overflow]

    def is_met_exactly(self, actual: Any) -> Any:
        """Where C is the rounded value, NaN where that is NaN, or an infinity where a result within the bound
        overflows."""
        same = actual == self.rounded
        if self.nan is not None:
            same |= actual.isnan() & self.nan
        if self.overflow is not None:
            same |= actual.isinf() & (actual == self.overflow)
        return same


def compare(actual: Any, expected: Any, slack: Any, problem: GemmProblem, name: str, *, first_row: int = 0) -> Verdict:
    """``compared`` with a reference. expected, slack: (rows, n), as ``reference`` returns them."""
    return compared(actual, Expected.of(expected, slack, problem), problem, name, first_row=first_row)


def compared(actual: Any, expected: Expected, problem: GemmProblem, name: str, *, first_row: int = 0) -> Verdict:
    """Compares rows of C, from ``first_row`` on (rows are counted across the batch), with what is expected.

    A NaN is wrong unless the reference has it too. An infinity is wrong unless a result within the bound would overflow
    dtype_c.

    actual: (rows, n) in dtype_c.
    """
    import torch

    same = expected.is_met_exactly(actual)
    error = (actual.to(expected.values.dtype) - expected.values).abs_().masked_fill_(same, 0.0)
    score = (error / expected.bound).masked_fill_(same, 0.0).nan_to_num_(nan=math.inf, posinf=math.inf)
    worst = score.argmax()
    # In one tensor and by ``take``, so that the host waits for the GPU once; float64 holds every index.
    numbers = (worst, score.take(worst), actual.take(worst), expected.values.take(worst), error.max())
    place, over, got, want, largest = torch.stack([number.double() for number in numbers]).tolist()
    row, column = divmod(int(place), problem.n)
    ok, at = over <= 1.0, (first_row + row, column)
    message = "" if ok else f"C[{at[0]}, {at[1]}] is {got:.6g}, the reference {want:.6g}: {over:.3g} times the bound"
    return Verdict(problem, name, ok, math.inf if math.isnan(largest) else largest, over, at, message)


def first_row(problem: GemmProblem, matrices: slice, rows: slice) -> int:
    """The first row of a block, counted across the batch."""
    return int((matrices.start or 0) * problem.m + (rows.start or 0))


def blocks(problem: GemmProblem) -> Iterator[tuple[slice, slice]]:
    """The blocks in which C is compared: (matrices of the batch, rows), several matrices or some rows of one."""
    largest = max(problem.m * problem.k, problem.k * problem.n, problem.m * problem.n)
    together = COMPARE_ELEMENTS // largest
    if together > 1:
        for start in range(0, problem.batch, together):
            yield slice(start, start + together), ALL
        return
    height = max(1, COMPARE_ELEMENTS // max(problem.n, problem.k))
    for matrix in range(problem.batch):
        for start in range(0, problem.m, height):
            yield slice(matrix, matrix + 1), slice(start, start + height)


def worse(one: Verdict, other: Verdict) -> Verdict:
    """The verdict with the larger error_over_bound; its max_abs_error is the larger one of both."""
    error = max(one.max_abs_error, other.max_abs_error)
    return replace(max((one, other), key=lambda verdict: verdict.error_over_bound), max_abs_error=error)
