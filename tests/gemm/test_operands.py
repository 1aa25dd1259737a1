"""Operands, scratch, the vendor's calls, and what stands for tensors when compiling. Imports torch, on the CPU."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gemm_tuner.core.dtypes import DTYPES, INPUT_DTYPES
from gemm_tuner.gemm.compare import compare
from gemm_tuner.gemm.kernels import blank_operands
from gemm_tuner.gemm.operands import INIT_TYPES, INT32_SENTINEL, Operands, interpretable, make_operands, torch_dtype
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.reference import reference
from gemm_tuner.gemm.vendor import vendor_call
from gemm_tuner.languages.scratch import ScratchPool
from gemm_tuner.languages.triton.blank import Blank

torch = pytest.importorskip("torch")

ROW, COL = Layout.ROW, Layout.COL
TENSORS = ("a", "b", "c", "bias", "c_in", "scale_a", "scale_b")
FULL = GemmProblem(24, 40, 300, bias=True, beta=0.5, alpha=2.0)


def shapes_of(operands: Operands) -> dict[str, tuple[int, ...]]:
    tensors = {name: getattr(operands, name) for name in TENSORS}
    return {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor is not None}


def test_tensors_lie_as_the_layouts_say_and_the_batch_comes_first() -> None:
    assert shapes_of(make_operands(FULL, "randn", 0, "cpu")) == {
        "a": (24, 300), "b": (300, 40), "c": (24, 40), "bias": (40,), "c_in": (24, 40),
    }  # fmt: skip
    problem = replace(FULL, batch=3, layout_a=COL, layout_b=COL, bias=False)
    operands = make_operands(problem, "randn", 0, "cpu")
    assert shapes_of(operands) == {"a": (3, 300, 24), "b": (3, 40, 300), "c": (3, 24, 40), "c_in": (3, 24, 40)}
    assert [tuple(matrix.shape) for matrix in operands.logical(problem)] == [(3, 24, 300), (3, 300, 40)]
    assert (operands.alpha, operands.beta) == (2.0, 0.5)
    assert all(tensor.is_contiguous() for tensor in (operands.a, operands.b, operands.c, operands.c_in))


@pytest.mark.parametrize(
    ("scaling", "shape_a", "shape_b"),
    [("tensor", (1,), (1,)), ("row_col", (24,), (40,)), ("block", (24, 3), (1, 3))],
)
def test_scales(scaling: str, shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    operands = make_operands(GemmProblem(24, 40, 300, "fp8_e4m3", "fp8_e4m3", scaling=scaling), "zeros", 0, "cpu")
    for scale, shape in ((operands.scale_a, shape_a), (operands.scale_b, shape_b)):
        assert scale.dtype == torch.float32 and tuple(scale.shape) == shape
        assert float(scale.min()) >= 0.5 and float(scale.max()) < 2


@pytest.mark.parametrize("init_type", INIT_TYPES)
@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_values_are_finite_random_and_of_mean_zero(dtype: str, init_type: str) -> None:
    dtype_c = "int32" if dtype == "int8" else "fp32"
    operands = make_operands(GemmProblem(100, 20, 1000, dtype, dtype, dtype_c), init_type, 0, "cpu")
    values = operands.a.double()
    assert operands.a.dtype == torch_dtype(dtype) and bool(values.isfinite().all())
    spread = {"randn": 1.0, "hpl": 1 / math.sqrt(12), "trig_float": math.sqrt(0.5), "zeros": 0.0}[init_type]
    if dtype == "int8":
        spread = {"randn": 127 / math.sqrt(3), "hpl": 127 / math.sqrt(3)}.get(init_type, 127 * spread)
    assert float(values.std()) == pytest.approx(spread, rel=0.02)
    assert abs(float(values.mean())) <= 0.02 * spread
    assert bool((operands.c == INT32_SENTINEL).all() if dtype == "int8" else operands.c.isnan().all())


def test_the_same_seed_gives_the_same_values_and_another_others() -> None:
    problem = replace(FULL, dtype_a="fp8_e4m3", dtype_b="fp8_e4m3", scaling="row_col")
    one, again, other = (make_operands(problem, "randn", seed, "cpu") for seed in (0, 0, 1))
    for name in ("a", "b", "bias", "c_in", "scale_a", "scale_b"):
        assert torch.equal(getattr(one, name).float(), getattr(again, name).float())
        assert not torch.equal(getattr(one, name).float(), getattr(other, name).float())


@pytest.mark.parametrize("dtype", [name for name in INPUT_DTYPES if DTYPES[name].is_fp8])
def test_what_is_interpreted_has_the_values_of_fp8(dtype: str) -> None:
    problem = GemmProblem(16, 16, 16, dtype, dtype, "bf16")
    every = torch.arange(256, dtype=torch.uint8).view(torch_dtype(dtype)).reshape(16, 16)
    shown = interpretable(replace(make_operands(problem, "randn", 0, "cpu"), a=every))
    assert shown.a.dtype == torch.float16 and shown.c.dtype == torch.float32
    assert torch.equal(shown.a.float().nan_to_num(nan=1e9), every.float().nan_to_num(nan=1e9))


def test_scratch_grows_and_large_partial_sums_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def noted(elements: int, device: str) -> Any:
        sizes.append(elements)
        return torch.empty(elements, device="meta")

    monkeypatch.setattr("gemm_tuner.languages.scratch.partial_sums", noted)
    pool = ScratchPool("cpu")
    assert pool.take(0, 0).partial_sums is None and pool.take(0, 0).locks is None
    small = pool.take(100, 4)
    assert small.locks.dtype == torch.int32 and small.locks.tolist() == [0] * 4
    assert pool.take(50, 2).partial_sums is small.partial_sums and pool.take(50, 2).locks is small.locks
    assert len(pool.take(200, 9).locks) == 9
    beyond = pool.take(2**29, 0).partial_sums
    assert pool.take(200, 0).partial_sums is not beyond and pool.take(2**29, 0).partial_sums is beyond
    assert sizes == [100, 200, 2**29]


FP8 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e4m3", "layout_b": COL}
INT8 = {"dtype_a": "int8", "dtype_b": "int8", "dtype_c": "int32"}
CALLED = (
    GemmProblem(24, 40, 64),
    GemmProblem(24, 40, 64, bias=True),
    GemmProblem(24, 40, 64, alpha=0.3, layout_a=COL),
    GemmProblem(24, 40, 64, beta=0.3, layout_b=COL),
    GemmProblem(24, 40, 64, alpha=3.0, beta=-1.0, bias=True, activation="gelu"),
    GemmProblem(24, 40, 64, "fp16", "fp16", "fp16", alpha=3.0, bias=True, activation="relu"),
    GemmProblem(24, 40, 64, "fp32", "fp32", "fp32", activation="silu"),
    GemmProblem(24, 40, 64, "fp32", "fp32", "fp32", precision="tf32"),
    *(GemmProblem(24, 40, 64, "fp32", "fp32", "fp32", batch=3, alpha=alpha, layout_a=COL) for alpha in (1.0, 0.3)),
    GemmProblem(24, 40, 64, "fp32", "fp32", "fp32", batch=3, alpha=0.3, bias=True),
    GemmProblem(24, 40, 64, "fp32", "fp32", "fp32", batch=3, beta=0.3, bias=True, activation="gelu"),
    GemmProblem(24, 48, 64, **FP8),
    GemmProblem(24, 48, 64, **FP8, dtype_c="fp16", alpha=3.0, beta=0.5, activation="relu"),
    GemmProblem(24, 48, 64, **FP8, scaling="tensor", bias=True, alpha=0.5),
    GemmProblem(24, 48, 64, **FP8, dtype_c="fp32", scaling="tensor", bias=True, activation="silu"),
    GemmProblem(24, 48, 64, **FP8, scaling="row_col", alpha=0.5),
    GemmProblem(24, 40, 64, **INT8),
    GemmProblem(24, 40, 64, **INT8, bias=True, layout_b=COL),
)


@pytest.mark.parametrize("problem", CALLED, ids=lambda problem: problem.key)
def test_the_vendor_computes_the_same(problem: GemmProblem) -> None:
    operands = make_operands(problem, "randn", 0, "cpu")
    call = vendor_call(problem, operands)
    assert call is not None
    call()
    first = operands.c.clone()
    call()
    assert torch.equal(first, operands.c), "a second call took something from the first"
    expected, slack = reference(problem, operands)
    if problem.reads_c or problem.bias or problem.activation != "none":
        # C is rounded before every step that is not fused: by as much as the largest number on the way.
        slack = slack + 4 * DTYPES[problem.dtype_c].unit_roundoff * expected.abs().max()
    verdict = compare(operands.c.reshape(-1, problem.n), expected, slack, problem, "vendor")
    assert verdict.ok, verdict.message


@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(24, 40, 64, "fp16", "fp16", "fp32"),
        GemmProblem(24, 40, 64, **FP8),
        GemmProblem(24, 48, 72, **FP8),
        GemmProblem(24, 48, 64, **{**FP8, "layout_b": ROW}),
        GemmProblem(24, 48, 64, **FP8, layout_a=COL),
        GemmProblem(24, 48, 64, **FP8, batch=2),
        GemmProblem(24, 48, 64, **FP8, scaling="block"),
        GemmProblem(24, 48, 64, **FP8, scaling="row_col", dtype_c="fp16"),
        GemmProblem(24, 48, 64, "fp8_e5m2", "fp8_e5m2", layout_b=COL),
        GemmProblem(24, 48, 64, "fp8_e4m3_fnuz", "fp8_e4m3_fnuz", layout_b=COL),
        GemmProblem(16, 40, 64, **INT8),
        GemmProblem(24, 42, 64, **INT8),
        GemmProblem(24, 40, 60, **INT8),
        GemmProblem(24, 40, 64, **INT8, batch=2),
        GemmProblem(24, 40, 64, "int8", "int8", "fp32"),
    ],
    ids=lambda problem: problem.key,
)
def test_there_is_no_vendor_call_where_torch_has_none(problem: GemmProblem) -> None:
    assert vendor_call(problem, make_operands(problem, "zeros", 0, "cpu")) is None


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_the_vendor_multiplies_fp32_as_the_problem_says(precision: str) -> None:
    problem = GemmProblem(24, 40, 64, "fp32", "fp32", "fp32", precision=precision)
    operands = make_operands(problem, "zeros", 0, "cpu")
    call = vendor_call(problem, operands)
    assert call is not None
    call()
    assert torch.backends.cuda.matmul.allow_tf32 == (precision == "tf32")
    reference(problem, operands)
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("backend", ["cuda", "hip"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_stands_for_a_tensor_is_specialised_as_one(dtype: str, backend: str) -> None:
    """The signature and the alignment are part of Triton's cache key: a kernel compiled before is found by them."""
    from triton._C.libtriton import native_specialize_impl
    from triton.backends import backends
    from triton.tools.tensor_descriptor import TensorDescriptor

    compiler = backends["nvidia" if backend == "cuda" else "amd"].compiler
    tensor = torch.zeros(64, 64, dtype=torch_dtype(dtype))
    assert tensor.data_ptr() % 16 == 0
    stand_in = Blank(dtype, 64 * 64)
    wrapped = [TensorDescriptor(base, [64, 64], [64, 1], [16, 16]) for base in (tensor, stand_in)]
    for given, meant in ((stand_in, tensor), (wrapped[1], wrapped[0])):
        found = native_specialize_impl(compiler, given, False, True, True)
        assert tuple(found) == tuple(native_specialize_impl(compiler, meant, False, True, True))
        assert {"fp8_e4m3": "fp8e4nv", "bf16": "bf16", "int32": "i32"}.get(dtype, "") in found[0]


@pytest.mark.parametrize(
    "problem",
    [FULL, replace(FULL, batch=3), GemmProblem(24, 200, 300, "fp8_e4m3", "fp8_e5m2", scaling="block")],
    ids=lambda problem: problem.key,
)
def test_what_stands_for_operands_is_as_large_as_they_are(problem: GemmProblem) -> None:
    stand_ins, operands = blank_operands(problem, Blank), make_operands(problem, "zeros", 0, "cpu")
    for name in TENSORS:
        stand_in, tensor = getattr(stand_ins, name), getattr(operands, name)
        assert (stand_in is None) == (tensor is None)
        if tensor is not None:
            assert stand_in.ptr_range() == tensor.untyped_storage().size()
    assert (stand_ins.alpha, stand_ins.beta) == (operands.alpha, operands.beta)
