"""A placeholder for tensors, for compilation without torch."""

from __future__ import annotations

import copy
from typing import Any

from gemm_tuner.core.dtypes import STORED


class Blank:
    """A placeholder for a tensor: an element type, an aligned address and an extent in bytes, but no memory.

    The extent matters on AMD, where Triton addresses buffers under 2 GiB with 32-bit offsets.
    """

    def __init__(self, dtype: str, elements: int) -> None:
        import triton.language as tl

        self.dtype = getattr(tl, STORED[dtype].triton_name)
        self._bytes = elements * STORED[dtype].size_bytes

    def data_ptr(self) -> int:
        return 0

    def __getitem__(self, part: slice) -> Blank:
        """A slice of the elements; as with torch, the extent remains that of the whole storage."""
        return copy.copy(self)

    def view(self, dtype: Any) -> Blank:
        """The same memory as another type."""
        other = copy.copy(self)
        other.dtype = dtype
        return other

    def ptr_range(self) -> int:
        return self._bytes
