"""Which types an architecture multiplies: a size of another one is refused before any configuration is looked at."""

from __future__ import annotations

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device
from gemm_tuner.gemm.problem import GemmProblem

_FNUZ = "_fnuz"


def type_fault(problem: GemmProblem, device: Device) -> UserError | None:
    """Why the architecture cannot multiply the types of a problem, with what it can; None when it can.

    The types of an architecture are those that its space file gives a rate for (``matmul_tflops``).
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
