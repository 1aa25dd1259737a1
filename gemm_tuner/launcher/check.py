"""Is a configuration right? Compares one call with a reference of higher precision."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

from gemm_tuner.dtypes import DTYPES
from gemm_tuner.launcher.kernels import launch_all
from gemm_tuner.launcher.operands import make_operands, torch_dtype, workspace
from gemm_tuner.records import GemmProblem, Verdict

# Products of fp16 and bf16 are exact in fp32; sums round or, on tensor cores, truncate: one ulp each.
ACCUMULATOR_ROUNDOFF = 2.0**-23
# Failure probability of the probabilistic bound falls as exp(-lambda^2 / 2); 6 leaves 1e-8.
ROUNDING_LAMBDA = 6.0
# Truncation always errs the same way, so its errors add up. Measured on an H200 (docs/checking.md): 0.05.
TRUNCATION_FACTOR = 0.25
# A float64 reference up to this many multiply-adds or on the CPU, float32 above.
FLOAT64_LIMIT = 2**37
# Elements of a block of rows of A or C when results are compared: 0.5 GiB in float64.
COMPARE_ELEMENTS = 2**26
ALL_ROWS = slice(None)


def error_bound(expected: Any, spread: Any, problem: GemmProblem) -> Any:
    """Largest error of a right result, element by element, for operands of mean zero.

    u sqrt(k) (6 + sqrt(k) / 4) * spread for the sum of k products in fp32, u = 2**-23. The 6 stands for rounding:
    for random terms of mean zero the errors of the partial sums, which grow like sqrt(i), add up like
    a random walk (Higham and Mary, "Sharper Probabilistic Backward Error Analysis for Basic Linear
    Algebra Kernels with Random Data", SIAM J. Sci. Comput. 42(5), 2020). The sqrt(k) / 4 stands for the
    truncation of tensor cores (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor
    cores", PeerJ Comput. Sci. 7, 2021), whose size was measured. To this comes one rounding of the
    result to dtype_c, u_c * |C|.

    expected: A B (+ bias). spread: the root of the sum of the squared terms. Both (m, n).
    """
    rounding = DTYPES[problem.dtype_c].unit_roundoff
    root = math.sqrt(problem.k)
    summed = ACCUMULATOR_ROUNDOFF * root * (ROUNDING_LAMBDA + TRUNCATION_FACTOR * root) * spread
    # Below the least normal fp16 the spacing is absolute: 2**-24.
    smallest = 2.0**-24 if problem.dtype_c == "fp16" else 0.0
    return summed + rounding * (expected.abs() + summed) + smallest


def reference(problem: GemmProblem, operands: Any, rows: slice = ALL_ROWS) -> tuple[Any, Any]:
    """(A B + bias, root of the sum of the squared terms) of some rows of C, in float64 up to FLOAT64_LIMIT
    multiply-adds, else in float32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    wide = problem.flops // 2 <= FLOAT64_LIMIT or operands.a.device.type == "cpu"
    kind = torch.float64 if wide else torch.float32
    a, b = operands.logical(problem)
    a, b = a[rows].to(kind), b.to(kind)
    expected = a @ b
    squares = a.square() @ b.square()
    if operands.bias is not None:
        expected += operands.bias.to(kind)
        squares += operands.bias.to(kind).square()
    return expected, squares.sqrt_()


def compare(actual: Any, expected: Any, spread: Any, problem: GemmProblem, name: str, *, first_row: int = 0) -> Verdict:
    """The verdict on ``actual`` in dtype_c, the rows of C from ``first_row`` on. A NaN that the reference has
    not is wrong, and so is an infinity, unless a result within the bound is beyond dtype_c's largest number."""
    import torch

    bound = error_bound(expected, spread, problem)
    kind = torch_dtype(problem.dtype_c)
    rounded, farthest = expected.to(kind), (expected + bound.copysign(expected)).to(kind)
    same = (actual == rounded) | (actual.isnan() & rounded.isnan()) | (actual.isinf() & (actual == farthest))
    error = (actual.to(expected.dtype) - expected).abs().masked_fill(same, 0.0)
    score = torch.where(same, torch.zeros_like(error), error / bound)
    score = score.nan_to_num(nan=math.inf, posinf=math.inf)
    worst = int(score.argmax())
    row, column = divmod(worst, problem.n)
    over, largest = float(score.flatten()[worst]), float(error.nan_to_num(nan=math.inf, posinf=math.inf).max())
    got, want = float(actual[row, column]), float(expected[row, column])
    ok, at = over <= 1.0, (first_row + row, column)
    message = "" if ok else f"C[{at[0]}, {at[1]}] is {got:.6g}, the reference {want:.6g}: {over:.3g} times the bound"
    return Verdict(problem, name, ok, largest, over, at, message)


def check(script: ModuleType, problem: GemmProblem, name: str, seed: int, device: str) -> Verdict:
    """Runs one configuration once on N(0, 1) operands and NaN-filled outputs and compares it with the
    reference, some rows at a time: what the comparison holds stays near COMPARE_ELEMENTS numbers."""
    operands = make_operands(problem, "randn", seed, device)
    config, size = script.CONFIGS[name], (problem.m, problem.n, problem.k)
    scratch = workspace(script.workspace_elements(config, size), device)
    tensors = (operands.a, operands.b, operands.c, operands.bias)
    if device == "cpu":
        tensors = tuple(interpretable(tensor) for tensor in tensors)
    launch_all(script.calls(config, size, *tensors, scratch))
    actual = tensors[2].to(operands.c.dtype)
    height = max(1, COMPARE_ELEMENTS // max(problem.n, problem.k))
    worst: Verdict | None = None
    for start in range(0, problem.m, height):
        rows = slice(start, start + height)
        part = compare(actual[rows], *reference(problem, operands, rows), problem, name, first_row=start)
        worst = part if worst is None else worse(worst, part)
    assert worst is not None
    return worst


def worse(one: Verdict, other: Verdict) -> Verdict:
    """The verdict that is farther over its bound, with the larger error of both."""
    error = max(one.max_abs_error, other.max_abs_error)
    return replace(max((one, other), key=lambda verdict: verdict.error_over_bound), max_abs_error=error)


def interpretable(tensor: Any) -> Any:
    """bf16 as fp32 of the same values. Triton's interpreter multiplies the bit patterns of bf16 in tl.dot
    (triton-lang/triton issue 11584) and cuts results off where a GPU rounds. Products of bf16 are exact in
    fp32 and the caller rounds the result, so what is computed is the same."""
    import torch

    return tensor.float() if tensor is not None and tensor.dtype == torch.bfloat16 else tensor


def odd_companion(problem: GemmProblem, config: dict[str, Any]) -> GemmProblem:
    """A small problem of odd sizes that the same tile covers with a ragged edge on every side:
    just over one tile in M and N, and a K that no BLOCK_SIZE_K or SPLIT_K divides."""
    return replace(
        problem,
        m=config["BLOCK_SIZE_M"] + 13,
        n=config["BLOCK_SIZE_N"] + 29,
        k=2 * config["BLOCK_SIZE_K"] * config["SPLIT_K"] + 7,
    )


def small_companion(problem: GemmProblem, config: dict[str, Any]) -> GemmProblem:
    """An even problem of two tiles by two and a few blocks of K, for Triton's interpreter."""
    return replace(
        problem,
        m=min(problem.m, 2 * config["BLOCK_SIZE_M"]),
        n=min(problem.n, 2 * config["BLOCK_SIZE_N"]),
        k=min(problem.k, 4 * config["BLOCK_SIZE_K"] * config["SPLIT_K"]),
    )
