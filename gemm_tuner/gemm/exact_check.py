"""Compares C with the exact result, for operands of ``exact_operands``."""

from __future__ import annotations

from typing import Any

from gemm_tuner.gemm.operands import Operands, torch_dtype
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.reference import ACTIVATION_ROUNDOFF, ALL, EPILOGUE_ROUNDOFF, SLOPES, activated, batched, scaled

Wrong = tuple[tuple[int, int], str]


def exact_fault(
    actual: Any, problem: GemmProblem, operands: Operands, rows: slice = ALL, matrices: slice = ALL
) -> Wrong | None:
    """((row, column), message) of the first element that is not exact; None when all are.

    actual: (matrices * rows, n) in dtype_c; rows are counted from its first one.
    """
    a, b, x = before_activation(problem, operands, rows, matrices)
    low, high = exact_range(x, problem)
    wrong = ~((actual >= low) & (actual <= high))  # NaN is wrong
    if not bool(wrong.any()):
        return None
    row, column = divmod(int(wrong.flatten().byte().argmax()), problem.n)
    want = f"{float(low[row, column]):.9g}"
    if low[row, column] != high[row, column]:
        want += f" to {float(high[row, column]):.9g}"
    count = int(wrong.sum())
    message = f"is {float(actual[row, column]):.9g}, exactly {want}; {count} of {wrong.numel()} elements are wrong"
    return (row, column), message + suspect(actual, a, b, x, problem)


def before_activation(problem: GemmProblem, operands: Operands, rows: slice, matrices: slice) -> tuple[Any, Any, Any]:
    """(A, B, C before activation) in fp32, with scales multiplied into A and B; C is (matrices * rows, n).

    fp32 is wide enough: every partial sum is exact in it.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = scaled(problem, operands, rows, matrices, torch.float32)
    x = (a @ b).reshape(-1, problem.n).mul_(problem.alpha)
    if operands.c_in is not None:
        x += batched(operands.c_in)[matrices, rows].float().reshape(-1, problem.n) * problem.beta
    if operands.bias is not None:
        x += operands.bias.float()
    return a, b, x


def exact_range(x: Any, problem: GemmProblem) -> tuple[Any, Any]:
    """(smallest, largest) correct C in dtype_c. x: C before activation. They differ for gelu and silu only, by the
    errors of exp and erf."""
    kind = torch_dtype(problem.dtype_c)
    if problem.activation in ("none", "relu"):
        exact = activated(problem.activation, x).to(kind)
        return exact, exact
    wide = x.double()
    slack = (SLOPES[problem.activation] * EPILOGUE_ROUNDOFF + ACTIVATION_ROUNDOFF[problem.activation]) * wide.abs()
    y = activated(problem.activation, wide)
    return (y - slack).to(kind), (y + slack).to(kind)


def suspect(actual: Any, a: Any, b: Any, x: Any, problem: GemmProblem) -> str:
    """Names the k whose product is missing or counted twice, where a single one explains the whole error; else "".

    Of a pair of terms that cancel, one missing gives the same error as the other counted twice: both are named.
    """
    import torch

    if problem.activation != "none":
        return ""
    error = (actual.float() - x).reshape(len(a), -1, problem.n)
    if not bool(error.isfinite().all()):
        return ""
    score = (a * (error @ b.transpose(-1, -2))).sum((0, 1)) * problem.alpha
    found = []
    for sign, words in ((-1, "missing"), (1, "counted twice")):
        likely = (sign * score == (sign * score).max()).nonzero().flatten()
        k = int(likely[0])
        if len(likely) == 1 and torch.equal(error, sign * problem.alpha * a[:, :, k, None] * b[:, k, None, :]):
            found.append(f"k = {k} were {words}")
    return ": as if the product of " + " or of ".join(found) if found else ""
