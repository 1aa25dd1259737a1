"""Valid combinations of types, scales and epilogues: a table of checks, each with the values it would accept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device
from gemm_tuner.gemm.problem import GemmProblem


@dataclass(frozen=True, slots=True)
class Check:
    """One reason to refuse a problem.

    broken:   whether a problem has this fault.
    what:     the fault in words; {p} is the problem.
    accepted, hint: as in UserError.
    """

    broken: Callable[[GemmProblem], bool]
    what: str
    accepted: str
    hint: str = ""


def multiply(dtype_a: str, dtype_b: str) -> bool:
    """Whether a kernel can multiply these types: equal types, or two fp8 types of one encoding (OCP or fnuz)."""
    both_fp8 = DTYPES[dtype_a].is_fp8 and DTYPES[dtype_b].is_fp8
    return dtype_a == dtype_b or (both_fp8 and dtype_a.endswith("_fnuz") == dtype_b.endswith("_fnuz"))


def needs_float(problem: GemmProblem) -> bool:
    """Whether alpha, beta, an activation or scales make non-integer results of integer sums."""
    return problem.has_alpha or problem.reads_c or problem.activation != "none" or problem.scaling != "none"


CHECKS = (
    Check(
        lambda p: not multiply(p.dtype_a, p.dtype_b),
        "dtype_a is {p.dtype_a} and dtype_b is {p.dtype_b}: mixed input types are for fp8 only, of one kind",
        "one type for both, or fp8_e4m3 with fp8_e5m2, or fp8_e4m3_fnuz with fp8_e5m2_fnuz",
        "give dtype_a and dtype_b",
    ),
    Check(
        lambda p: p.dtype_c == "int32" and p.dtype_a != "int8",
        "dtype_c is int32 and the inputs are {p.dtype_a}: only int8 sums to int32",
        "fp16, bf16 or fp32; int32 for int8 inputs",
    ),
    Check(
        lambda p: p.dtype_c == "int32" and needs_float(p),
        "dtype_c is int32, and alpha, beta, activation and scaling give fractions",
        "a dtype_c of fp16, bf16 or fp32, or none of the four; bias is taken",
    ),
    Check(
        lambda p: p.precision == "tf32" and p.dtype_a != "fp32",
        "precision is tf32 and the inputs are {p.dtype_a}: tf32 is a way to multiply fp32",
        "tf32 for fp32 inputs, else ieee",
    ),
    Check(
        lambda p: p.scaling != "none" and p.dtype_a != "int8" and not DTYPES[p.dtype_a].is_fp8,
        "scaling is {p.scaling} and the inputs are {p.dtype_a}: scales make up for the short range of fp8 and int8",
        "scaling for fp8 and int8 inputs, else none",
        "alpha is a factor for any type",
    ),
    Check(
        lambda p: p.scaling == "block" and not DTYPES[p.dtype_a].is_fp8,
        "scaling is block and the inputs are {p.dtype_a}",
        "block for fp8 inputs; none, tensor or row_col for int8",
    ),
    Check(
        lambda p: p.scaling in ("row_col", "block") and p.batch > 1,
        "scaling is {p.scaling} and batch is {p.batch}: such scales are of one matrix",
        "tensor or none with a batch",
    ),
    Check(
        lambda p: p.alpha == 0,
        "alpha is 0: there would be no product to compute",
        "any other number; 1 for the plain product",
    ),
)


def first_fault(problem: GemmProblem) -> UserError | None:
    """The first fault of a problem as an error without ``where``; None for a valid problem."""
    for check in CHECKS:
        if check.broken(problem):
            return UserError(check.what.format(p=problem), accepted=check.accepted, hint=check.hint)
    return None


def refuse_meaningless(problem: GemmProblem, where: str) -> None:
    """Raise UserError for a problem with a fault. where: its place in the input."""
    fault = first_fault(problem)
    if fault:
        raise UserError(fault.what, where=where, accepted=fault.accepted, hint=fault.hint)


_FNUZ = "_fnuz"


def type_fault(problem: GemmProblem, device: Device) -> UserError | None:
    """Why the device cannot multiply the types of a problem, and which it can; None when it can.

    An architecture supports the types that its space file gives a rate for (``matmul_tflops``).
    """
    rates, arch = dict(device.matmul_tflops), device.target.arch
    needed = [problem.rate_key, *([problem.dtype_b] if problem.dtype_b != problem.dtype_a else [])]
    missing = next((key for key in needed if key not in rates), "")
    if not missing:
        return None
    if missing == "tf32":
        hint = "give precision ieee, which multiplies fp32 in full"
    elif missing in DTYPES and DTYPES[missing].is_fp8:
        other = missing.removesuffix(_FNUZ) if missing.endswith(_FNUZ) else missing + _FNUZ
        hint = f"{arch} has {other} instead" if other in rates else f"{arch} has no fp8"
    else:
        hint = "give another type, or another --arch"
    types = ", ".join(name for name in rates if name in DTYPES)
    return UserError(f"{arch} does not multiply {missing}", where=problem.key, accepted=types, hint=hint)
