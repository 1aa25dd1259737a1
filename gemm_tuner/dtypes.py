"""The element types that the kernels take, and what each costs and rounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    name:          as on the command line and in files.
    torch_name:    attribute of ``torch`` and of ``triton.language``.
    size_bytes:    bytes of one element.
    unit_roundoff: largest relative error of one rounding to nearest, 2**-p for a
                   significand of p bits (Higham, Accuracy and Stability, 2nd ed., sec. 2.1).
    """

    name: str
    torch_name: str
    size_bytes: int
    unit_roundoff: float


DTYPES = {
    t.name: t
    for t in (
        DType("fp16", "float16", 2, 2.0**-11),
        DType("bf16", "bfloat16", 2, 2.0**-8),
        DType("fp32", "float32", 4, 2.0**-24),
    )
}
