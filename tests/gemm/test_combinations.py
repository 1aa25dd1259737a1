"""Which types, scales and epilogues go together, and what a wrong type's name is answered with."""

from __future__ import annotations

from typing import Any

import pytest

from gemm_tuner.core.dtypes import DTYPES, INPUT_DTYPES, OUTPUT_DTYPES
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.combinations import CHECKS, first_fault, multiply, refuse_meaningless
from gemm_tuner.gemm.problem import ACTIVATIONS, GemmProblem
from gemm_tuner.gemm.problem_keys import dtype_hint


def problem(dtype: str, dtype_c: str = "bf16", **keys: Any) -> GemmProblem:
    return GemmProblem(16, 16, 16, dtype, keys.pop("dtype_b", dtype), dtype_c, **keys)


REFUSED = {
    "two floats": (problem("fp16", dtype_b="bf16"), ["dtype_a is fp16 and dtype_b is bf16", "mixed input types"]),
    "fp8 and a float": (problem("fp8_e4m3", dtype_b="bf16"), ["mixed input types", "fp8_e4m3 with fp8_e5m2"]),
    "fp8 of two kinds": (problem("fp8_e4m3", dtype_b="fp8_e4m3_fnuz"), ["mixed input types", "of one kind"]),
    "int8 and fp8": (problem("int8", dtype_b="fp8_e4m3"), ["mixed input types"]),
    "int32 of fp16": (problem("fp16", "int32"), ["dtype_c is int32 and the inputs are fp16", "int32 for int8"]),
    "int32 of fp8": (problem("fp8_e4m3", "int32"), ["dtype_c is int32"]),
    "int32 and alpha": (problem("int8", "int32", alpha=2.0), ["dtype_c is int32", "fractions", "bias is taken"]),
    "int32 and beta": (problem("int8", "int32", beta=1.0), ["fractions", "a dtype_c of fp16, bf16 or fp32"]),
    "int32 and relu": (problem("int8", "int32", activation="relu"), ["fractions"]),
    "int32 and scales": (problem("int8", "int32", scaling="tensor"), ["fractions"]),
    "tf32 of bf16": (problem("bf16", precision="tf32"), ["precision is tf32 and the inputs are bf16", "ieee"]),
    "tf32 of int8": (problem("int8", precision="tf32"), ["precision is tf32"]),
    "scales of fp16": (problem("fp16", scaling="tensor"), ["scaling is tensor and the inputs are fp16", "alpha"]),
    "scales of fp32": (problem("fp32", scaling="block"), ["scaling is block", "fp8 and int8"]),
    "blocks of int8": (problem("int8", scaling="block"), ["scaling is block and the inputs are int8", "row_col"]),
    "rows in a batch": (problem("int8", scaling="row_col", batch=2), ["scaling is row_col and batch is 2", "tensor"]),
    "blocks in a batch": (problem("fp8_e4m3", scaling="block", batch=9), ["scaling is block and batch is 9"]),
    "alpha 0": (problem("bf16", alpha=0.0), ["alpha is 0", "no product"]),
}  # fmt: skip


@pytest.mark.parametrize(("refused", "words"), REFUSED.values(), ids=list(REFUSED))
def test_what_does_not_go_together_is_refused_with_what_would(refused: GemmProblem, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        refuse_meaningless(refused, "sizes.yaml, entry 1")
    message = caught.value.one_line()
    assert message.startswith("sizes.yaml, entry 1: ")
    assert "; accepted: " in message
    assert [word for word in words if word not in message] == []


def test_every_check_refuses_something() -> None:
    for check in CHECKS:
        assert any(check.broken(refused) for refused, _ in REFUSED.values()), check.what


@pytest.mark.parametrize("dtype_a", INPUT_DTYPES)
@pytest.mark.parametrize("dtype_b", INPUT_DTYPES)
def test_types_that_are_multiplied(dtype_a: str, dtype_b: str) -> None:
    kinds = [{"fp8_e4m3", "fp8_e5m2"}, {"fp8_e4m3_fnuz", "fp8_e5m2_fnuz"}]
    expected = dtype_a == dtype_b or {dtype_a, dtype_b} in kinds
    assert multiply(dtype_a, dtype_b) == expected
    assert (first_fault(problem(dtype_a, dtype_b=dtype_b)) is None) == expected


@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_what_goes_with_every_input(dtype: str) -> None:
    for dtype_c in ("fp16", "bf16", "fp32"):
        for activation in ACTIVATIONS:
            keys: dict[str, Any] = {"bias": True, "batch": 3, "alpha": -0.5, "beta": 2.0, "activation": activation}
            assert first_fault(problem(dtype, dtype_c, **keys)) is None


def test_what_goes_with_some() -> None:
    assert first_fault(problem("int8", "int32", bias=True, batch=2)) is None
    assert first_fault(problem("fp32", "bf16", precision="tf32")) is None
    for scaling in ("tensor", "row_col", "block"):
        for dtype in (name for name, known in DTYPES.items() if known.is_fp8):
            assert first_fault(problem(dtype, scaling=scaling)) is None
    assert first_fault(problem("int8", scaling="row_col", activation="gelu")) is None
    assert first_fault(problem("int8", scaling="tensor", batch=2)) is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fp8", "did you mean fp8_e4m3 (OCP) or fp8_e4m3_fnuz (MI300)?"),
        ("bf8", "did you mean fp8_e5m2 (OCP) or fp8_e5m2_fnuz (MI300)?"),
        ("e4m3", "did you mean fp8_e4m3 (OCP) or fp8_e4m3_fnuz (MI300)?"),
        ("e4m3fn", "did you mean fp8_e4m3 (OCP)?"),
        ("e4m3fnuz", "did you mean fp8_e4m3_fnuz (MI300)?"),
        ("float8_e5m2fnuz", "did you mean fp8_e5m2_fnuz (MI300)?"),
        ("float8e4nv", "did you mean fp8_e4m3 (OCP)?"),
        ("float16", "did you mean fp16?"),
        ("F16", "did you mean fp16?"),
        ("bfloat16", "did you mean bf16?"),
        ("float", "did you mean fp32?"),
        ("i8", "did you mean int8?"),
        ("int32", "int32 is for C only"),
        ("fp8_e4m4", "did you mean fp8_e4m3?"),
        ("tf32", "tf32 is a way to multiply fp32: write fp32, and tf32 for precision"),
        ("zzzz", ""),
        ("", ""),
    ],
)
def test_other_names_of_types_are_hints(name: str, hint: str) -> None:
    assert dtype_hint(name, INPUT_DTYPES) == hint


def test_hints_for_c_name_types_of_c() -> None:
    assert dtype_hint("fp8", OUTPUT_DTYPES) == "fp8_e4m3 is for A and B only"
    assert dtype_hint("fp8_e5m2", OUTPUT_DTYPES) == "fp8_e5m2 is for A and B only"
    assert dtype_hint("half", OUTPUT_DTYPES) == "did you mean fp16?"
    assert dtype_hint("i32", OUTPUT_DTYPES) == "did you mean int32?"
