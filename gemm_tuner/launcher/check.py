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

# Products of fp16 and bf16 are exact in fp32; sums round or truncate (tensor cores), so one ulp each.
ACCUMULATOR_ROUNDOFF = 2.0**-23
# Failure probability of the probabilistic bound falls as exp(-lambda^2 / 2); 6 leaves 1e-8.
BOUND_LAMBDA = 6.0
# A float64 reference up to this many multiply-adds or on the CPU, float32 above.
FLOAT64_LIMIT = 2**37


def error_bound(expected: Any, magnitude: Any, problem: GemmProblem) -> Any:
    """Largest error of a right result, element by element.

    lambda * sqrt(k) * u * (|A| |B|) for the sum of k products, with u the roundoff of the fp32
    accumulator: Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J.
    Sci. Comput. 41(5), 2019, theorem 3.1 (the sure bound has k in place of sqrt(k): Higham, Accuracy
    and Stability, 2nd ed., sec. 3.5). To this comes one rounding of the result to dtype_c, u_c * |C|.

    expected: A B (+ bias), magnitude: |A| |B| (+ |bias|), both (m, n) in the reference's precision.
    """
    rounding = DTYPES[problem.dtype_c].unit_roundoff
    summed = BOUND_LAMBDA * math.sqrt(problem.k) * ACCUMULATOR_ROUNDOFF * magnitude
    # Below the least normal fp16 the spacing is absolute: 2**-24.
    smallest = 2.0**-24 if problem.dtype_c == "fp16" else 0.0
    return summed + rounding * (expected.abs() + summed) + smallest


def reference(problem: GemmProblem, operands: Any) -> tuple[Any, Any]:
    """(A B + bias, |A| |B| + |bias|), in float64 up to FLOAT64_LIMIT multiply-adds, else float32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    wide = problem.flops // 2 <= FLOAT64_LIMIT or operands.a.device.type == "cpu"
    kind = torch.float64 if wide else torch.float32
    a, b = (matrix.to(kind) for matrix in operands.logical(problem))
    expected, magnitude = a @ b, a.abs() @ b.abs()
    if operands.bias is not None:
        expected += operands.bias.to(kind)
        magnitude += operands.bias.to(kind).abs()
    return expected, magnitude


def compare(actual: Any, expected: Any, magnitude: Any, problem: GemmProblem, name: str) -> Verdict:
    """The verdict on ``actual`` (m, n) in dtype_c. A NaN that the reference has not is wrong, and so is
    an infinity, unless a result within the bound is beyond the largest number of dtype_c."""
    import torch

    bound = error_bound(expected, magnitude, problem)
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
    ok = over <= 1.0
    message = "" if ok else f"C[{row}, {column}] is {got:.6g}, the reference {want:.6g}: {over:.3g} times the bound"
    return Verdict(problem, name, ok, largest, over, (row, column), message)


def check(script: ModuleType, problem: GemmProblem, name: str, init_type: str, seed: int, device: str) -> Verdict:
    """Runs one configuration once on NaN-filled outputs and compares it with the reference."""
    operands = make_operands(problem, init_type, seed, device)
    config, size = script.CONFIGS[name], (problem.m, problem.n, problem.k)
    scratch = workspace(script.workspace_elements(config, size), device)
    tensors = (operands.a, operands.b, operands.c, operands.bias)
    if device == "cpu":
        tensors = tuple(interpretable(tensor) for tensor in tensors)
    launch_all(script.calls(config, size, *tensors, scratch))
    actual = tensors[2].to(operands.c.dtype)
    return compare(actual, *reference(problem, operands), problem, name)


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
