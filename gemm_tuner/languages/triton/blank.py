"""What stands for a tensor when Triton compiles."""

from __future__ import annotations

from gemm_tuner.core.dtypes import DTYPES


class Blank:
    """A type, an aligned address and an extent in bytes, without memory.

    The extent matters on AMD, where Triton addresses buffers under 2 GiB with 32-bit offsets.
    """

    def __init__(self, dtype: str, elements: int) -> None:
        import triton.language as tl

        self.dtype = getattr(tl, DTYPES[dtype].triton_name)
        self._bytes = elements * DTYPES[dtype].size_bytes

    def data_ptr(self) -> int:
        return 0

    def ptr_range(self) -> int:
        return self._bytes
