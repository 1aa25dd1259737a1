"""The reference and its bound for scales, epilogues and types that are not plain 16-bit ones. Imports torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gemm_tuner.gemm.compare import compare
from gemm_tuner.gemm.operands import INT32_SENTINEL, Operands, make_operands, torch_dtype
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.reference import activated, reference

torch = pytest.importorskip("torch")

FP8 = ("fp8_e4m3", "fp8_e5m2", "fp8_e4m3_fnuz", "fp8_e5m2_fnuz")
E4M3 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e4m3"}
INT8 = {"dtype_a": "int8", "dtype_b": "int8"}
# One problem for each piece of the formula.
PIECES = {
    "alpha": GemmProblem(24, 40, 64, alpha=0.3),
    "beta": GemmProblem(24, 40, 64, beta=-1.7),
    "bias": GemmProblem(24, 40, 64, bias=True),
    "relu": GemmProblem(24, 40, 64, activation="relu", bias=True),
    "gelu": GemmProblem(24, 40, 64, activation="gelu"),
    "silu": GemmProblem(24, 40, 64, activation="silu", beta=1.0),
    "everything": GemmProblem(24, 40, 64, "fp32", "fp32", "fp32", alpha=0.1, beta=0.7, bias=True, activation="gelu"),
    "batch": GemmProblem(24, 40, 64, batch=3, alpha=2.5, beta=1.0, bias=True, activation="silu"),
    "fp8": GemmProblem(24, 40, 64, **E4M3),
    "fp8 tensor": GemmProblem(24, 40, 64, **E4M3, scaling="tensor", bias=True),
    "fp8 row_col": GemmProblem(24, 40, 64, **E4M3, scaling="row_col", alpha=0.5),
    "fp8 block": GemmProblem(24, 200, 300, **E4M3, scaling="block", activation="relu"),
    "fp8 tensor batch": GemmProblem(24, 40, 64, **E4M3, scaling="tensor", batch=3),
    "fp8 fp32": GemmProblem(24, 40, 64, **E4M3, dtype_c="fp32"),
    "int8": GemmProblem(24, 40, 64, **INT8, dtype_c="int32", bias=True),
    "int8 float": GemmProblem(24, 40, 64, **INT8, dtype_c="fp32", beta=1.0),
    "int8 row_col": GemmProblem(24, 40, 64, **INT8, dtype_c="fp16", scaling="row_col", alpha=1e-3),
}


def in_fp32(problem: GemmProblem, operands: Operands) -> Any:
    """C as a kernel computes it: sums and epilogue in fp32, scales on the sums (blocks: on the operands)."""
    exact = problem.sum_dtype == "int32"
    a, b = (matrix.to(torch.float64 if exact else torch.float32) for matrix in operands.logical(problem))
    if problem.scaling == "block":
        along_k = torch.arange(problem.k) // 128
        a = a * operands.scale_a[:, along_k]
        b = b * operands.scale_b[torch.arange(problem.n) // 128][:, along_k].t()
    result = (a @ b).float()
    if problem.scaling == "tensor":
        result = result * (operands.scale_a * operands.scale_b)
    if problem.scaling == "row_col":
        result = result * operands.scale_a[:, None] * operands.scale_b
    result = result * operands.alpha
    if operands.c_in is not None:
        result = result + operands.beta * operands.c_in.float()
    if operands.bias is not None:
        result = result + operands.bias.float()
    return activated(problem.activation, result).to(torch_dtype(problem.dtype_c)).reshape(-1, problem.n)


def right(problem: GemmProblem, actual: Any, operands: Operands) -> bool:
    return compare(actual, *reference(problem, operands), problem, "one").ok


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("seed", range(3))
def test_a_result_computed_in_fp32_passes(piece: str, seed: int) -> None:
    operands = make_operands(PIECES[piece], "randn", seed, "cpu")
    assert right(PIECES[piece], in_fp32(PIECES[piece], operands), operands)


@pytest.mark.parametrize("piece", PIECES)
def test_a_lost_term_fails(piece: str) -> None:
    problem = PIECES[piece]
    operands = make_operands(problem, "randn", 0, "cpu")
    a, _ = operands.logical(problem)
    a[..., 7:9], kept = 0, a[..., 7:9].clone()
    lost = in_fp32(problem, operands)
    a[..., 7:9] = kept
    assert not right(problem, lost, operands)


def without(operands: Operands, part: str) -> Operands:
    """The operands that a kernel would see that forgot a part of the formula, or took it from another place."""
    wrong = {
        "alpha": {"alpha": 1.0},
        "beta": {"beta": 1.0},
        "c_in": {"c_in": None},
        "bias": {"bias": None},
        "another bias": {"bias": operands.bias.roll(1) if operands.bias is not None else None},
    }
    for name in ("scale_a", "scale_b"):
        scale = getattr(operands, name)
        if scale is not None:
            wrong[name] = {name: torch.ones_like(scale)}
            wrong[f"another {name}"] = {name: scale.roll(1, 0)}
            wrong[f"another block of {name}"] = {name: scale.roll(1, -1)}
    return replace(operands, **wrong[part])


@pytest.mark.parametrize(
    ("piece", "part"),
    [
        ("alpha", "alpha"),
        ("beta", "beta"),
        ("beta", "c_in"),
        ("bias", "bias"),
        ("bias", "another bias"),
        ("relu", "bias"),
        ("silu", "c_in"),
        ("everything", "alpha"),
        ("batch", "another bias"),
        ("fp8 tensor", "scale_a"),
        ("fp8 tensor", "scale_b"),
        ("fp8 row_col", "another scale_a"),
        ("fp8 row_col", "another scale_b"),
        ("fp8 row_col", "alpha"),
        ("fp8 block", "another scale_a"),
        ("fp8 block", "another scale_b"),
        ("fp8 block", "another block of scale_a"),
        ("fp8 block", "another block of scale_b"),
        ("int8", "bias"),
        ("int8 float", "c_in"),
        ("int8 row_col", "another scale_b"),
    ],
)
def test_a_forgotten_or_misplaced_part_fails(piece: str, part: str) -> None:
    problem = PIECES[piece]
    operands = make_operands(problem, "randn", 0, "cpu")
    assert not right(problem, in_fp32(problem, without(operands, part)), operands)


@pytest.mark.parametrize("piece", ["relu", "gelu", "silu"])
def test_a_forgotten_activation_fails(piece: str) -> None:
    problem = PIECES[piece]
    operands = make_operands(problem, "randn", 0, "cpu")
    assert not right(problem, in_fp32(replace(problem, activation="none"), operands), operands)


def test_gelu_by_tanh_is_another_function() -> None:
    problem = replace(PIECES["gelu"], dtype_a="fp32", dtype_b="fp32", dtype_c="fp32")
    operands = make_operands(problem, "randn", 0, "cpu")
    plain = in_fp32(replace(problem, activation="none"), operands)
    assert right(problem, torch.nn.functional.gelu(plain), operands)
    assert not right(problem, torch.nn.functional.gelu(plain, approximate="tanh"), operands)


@pytest.mark.parametrize("dtype", FP8)
@pytest.mark.parametrize("k", [64, 1024, 4096])
def test_fp8_may_be_summed_in_14_bits(dtype: str, k: int) -> None:
    """The way of Hopper's tensor cores: 32 products at a time are added to a sum that is then cut off."""
    problem = GemmProblem(24, 40, k, dtype, dtype, "fp32")
    operands = make_operands(problem, "randn", 0, "cpu")
    a, b = (matrix.double() for matrix in operands.logical(problem))
    total = torch.zeros(24, 40, dtype=torch.float64)
    for start in range(0, k, 32):
        total += a[:, start : start + 32] @ b[start : start + 32]
        ulp = torch.exp2(torch.floor(torch.log2(total.abs().clamp_min(1e-30))) - 13)
        total = torch.trunc(total / ulp) * ulp
    assert right(problem, total.float(), operands)
    assert not right(replace(problem, dtype_a="fp16", dtype_b="fp16"), total.float(), operands)


@pytest.mark.parametrize("dtype", FP8)
def test_one_dropped_term_of_a_thousand_of_fp8_fails(dtype: str) -> None:
    problem = GemmProblem(64, 64, 1000, dtype, dtype, "bf16")
    operands = make_operands(problem, "randn", 0, "cpu")
    a, b = (matrix.double() for matrix in operands.logical(problem))
    assert not right(problem, (a[:, 1:] @ b[1:]).bfloat16(), operands)


def cut_to_tf32(matrix: Any) -> Any:
    return (matrix.view(torch.int32) & -(2**13)).view(torch.float32)


@pytest.mark.parametrize("k", [1, 64, 4096])
def test_tf32_may_cut_off_fractions_and_ieee_may_not(k: int) -> None:
    problem = GemmProblem(24, 40, k, "fp32", "fp32", "fp32", precision="tf32")
    operands = make_operands(problem, "randn", 0, "cpu")
    cut = replace(operands, a=cut_to_tf32(operands.a), b=cut_to_tf32(operands.b))
    assert right(problem, in_fp32(problem, cut), operands)
    assert not right(replace(problem, precision="ieee"), in_fp32(problem, cut), operands)
    coarser = replace(operands, a=operands.a.to(torch.float8_e4m3fn).float())
    assert not right(problem, in_fp32(problem, coarser), operands)


def test_int32_is_exact() -> None:
    problem = GemmProblem(24, 40, 30000, "int8", "int8", "int32")
    operands = make_operands(problem, "randn", 0, "cpu")
    operands.a[3], operands.b[:, 4] = 127, -127
    actual = operands.a.int() @ operands.b.int()
    assert int(actual[3, 4]) == -127 * 127 * 30000
    assert right(problem, actual, operands)
    for wrong in (int(actual[3, 4]) + 1, int(actual[3, 4]) - 1, INT32_SENTINEL, 0):
        actual[3, 4] = wrong
        verdict = compare(actual, *reference(problem, operands), problem, "one")
        assert not verdict.ok and verdict.worst_element == (3, 4)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_inf_come_out_of_an_activation_as_torch_has_them(activation: str, value: float) -> None:
    problem = GemmProblem(4, 6, 8, "fp16", "fp16", "fp16", bias=True, activation=activation)
    operands = make_operands(problem, "randn", 0, "cpu")
    operands.bias[3] = value
    actual = in_fp32(problem, operands)
    assert right(problem, actual, operands)
    meant = float(activated(activation, torch.tensor(value)))
    assert math.isnan(meant) == (math.isnan(value) or (value < 0 and activation in ("gelu", "silu")))
    for wrong in (5.0, -5.0, math.nan, math.inf, -math.inf):
        actual[2, 3] = wrong
        assert right(problem, actual, operands) == (wrong == meant or (math.isnan(wrong) and math.isnan(meant)))


@pytest.mark.parametrize("piece", PIECES)
def test_rows_and_matrices_are_those_of_the_whole(piece: str) -> None:
    problem = PIECES[piece]
    operands = make_operands(problem, "randn", 0, "cpu")
    whole = reference(problem, operands)
    part = reference(problem, operands, slice(3, 9), slice(problem.batch - 1, problem.batch))
    for all_of_it, some in zip(whole, part, strict=True):
        wanted = all_of_it.reshape(problem.batch, problem.m, problem.n)[-1, 3:9]
        assert torch.allclose(some, wanted, rtol=1e-12, atol=1e-12)


def test_the_operands_are_left_as_they_were() -> None:
    problem = replace(PIECES["everything"], dtype_a="fp32")
    operands, again = (make_operands(problem, "randn", 0, "cpu") for _ in range(2))
    reference(problem, operands)
    for name in ("a", "b", "bias", "c_in"):
        assert torch.equal(getattr(operands, name), getattr(again, name))


def test_a_sum_of_int8_that_is_zero_may_come_out_as_zero() -> None:
    """The reference scales before it sums, and is off by its own rounding there."""
    problem = GemmProblem(2, 3, 64, "int8", "int8", "bf16", scaling="row_col", activation="silu")
    operands = make_operands(problem, "randn", 0, "cpu")
    operands.a[:, 1::2] = -operands.a[:, 0::2]
    operands.b[1::2] = operands.b[0::2]
    zeros = torch.zeros(2, 3, dtype=torch.bfloat16)
    verdict = compare(zeros, *reference(problem, operands), problem, "x")
    assert verdict.ok, verdict.message
    operands.a[0, 0] += 1
    assert not compare(zeros, *reference(problem, operands), problem, "x").ok
