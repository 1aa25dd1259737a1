"""The element types that kernels accept: names, sizes in bytes and rounding errors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    name:          the name on the command line and in files.
    torch_name:    attribute of ``torch``.
    triton_name:   attribute of ``triton.language``.
    size_bytes:    bytes of one element.
    unit_roundoff: largest relative error of one rounding to nearest: 2**-p for a
                   significand of p bits (Higham, Accuracy and Stability, 2nd ed., sec. 2.1); 0 for integers.
    """

    name: str
    torch_name: str
    triton_name: str
    size_bytes: int
    unit_roundoff: float

    @property
    def is_fp8(self) -> bool:
        return self.name.startswith("fp8")


DTYPES = {
    t.name: t
    for t in (
        DType("fp16", "float16", "float16", 2, 2.0**-11),
        DType("bf16", "bfloat16", "bfloat16", 2, 2.0**-8),
        DType("fp32", "float32", "float32", 4, 2.0**-24),
        DType("fp8_e4m3", "float8_e4m3fn", "float8e4nv", 1, 2.0**-4),
        DType("fp8_e5m2", "float8_e5m2", "float8e5", 1, 2.0**-3),
        DType("fp8_e4m3_fnuz", "float8_e4m3fnuz", "float8e4b8", 1, 2.0**-4),
        DType("fp8_e5m2_fnuz", "float8_e5m2fnuz", "float8e5b16", 1, 2.0**-3),
        DType("int8", "int8", "int8", 1, 0.0),
        DType("int32", "int32", "int32", 4, 0.0),
    )
}
# Also bytes, in which packed weights lie: no type of a GEMM.
STORED = {**DTYPES, "uint8": DType("uint8", "uint8", "uint8", 1, 0.0)}
INPUT_DTYPES = tuple(name for name in DTYPES if name != "int32")
OUTPUT_DTYPES = ("fp16", "bf16", "fp32", "int32")
