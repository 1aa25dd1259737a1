"""Is a configuration right? Compares one call with a reference of higher precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

from gemm_tuner.launcher.kernels import launch_all
from gemm_tuner.launcher.operands import interpretable, make_operands, torch_dtype
from gemm_tuner.launcher.reference import ALL, batched, error_bound, reference
from gemm_tuner.launcher.scratch import call_size, count_sms, make_scratch
from gemm_tuner.records import GemmProblem, Verdict

# Elements of a block of A, B or C when results are compared: 0.5 GiB in float64.
COMPARE_ELEMENTS = 2**26


def compare(actual: Any, expected: Any, slack: Any, problem: GemmProblem, name: str, *, first_row: int = 0) -> Verdict:
    """The verdict on ``actual`` in dtype_c, the rows of C from ``first_row`` on. A NaN that the reference has
    not is wrong, and so is an infinity, unless a result within the bound is beyond dtype_c's largest number.

    actual, expected, slack: (rows, n), rows counted through the batch; the latter two as ``reference`` gives them.
    """
    import torch

    bound = error_bound(expected, slack, problem)
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
    """Runs one configuration once on N(0, 1) operands and an output that nobody wrote and compares it with the
    reference, some rows at a time: what the comparison holds stays near COMPARE_ELEMENTS numbers.

    Rows of the verdict count through the batch: row r of matrix i is i * m + r."""
    operands = make_operands(problem, "randn", seed, device)
    config, num_sms = script.CONFIGS[name], count_sms(device)
    scratch = make_scratch(script, config, problem, device, num_sms)
    given = interpretable(operands) if device == "cpu" else operands
    launch_all(script.calls(config, call_size(problem), given, scratch, num_sms))
    actual = batched(given.c.to(operands.c.dtype))
    worst: Verdict | None = None
    for matrices, rows in blocks(problem):
        part = compare(
            actual[matrices, rows].reshape(-1, problem.n),
            *reference(problem, operands, rows, matrices),
            problem,
            name,
            first_row=(matrices.start or 0) * problem.m + (rows.start or 0),
        )
        worst = part if worst is None else worse(worst, part)
    assert worst is not None
    return worst


def blocks(problem: GemmProblem) -> Iterator[tuple[slice, slice]]:
    """(matrices of the batch, rows of each) that are compared at a time: some matrices, or some rows of one."""
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
    """The verdict that is farther over its bound, with the larger error of both."""
    error = max(one.max_abs_error, other.max_abs_error)
    return replace(max((one, other), key=lambda verdict: verdict.error_over_bound), max_abs_error=error)
