"""Converts launches that were captured with tensors without memory to launches for compilation. Needs torch."""

from __future__ import annotations

from typing import Any

from gemm_tuner.core.workload import Launch
from gemm_tuner.hosts.shared_tensors import with_tensors


class TensorAt:
    """The properties of a tensor that Triton's compiler uses: type, address, and size of its storage in bytes;
    ``storage`` identifies that.

    The extent matters on AMD, where Triton addresses buffers under 2 GiB with 32-bit offsets.
    """

    def __init__(self, tensor: Any) -> None:
        self.dtype = tensor.dtype
        self.storage = tensor.untyped_storage()._cdata
        self._begins = tensor.storage_offset() * tensor.element_size()
        self._bytes = tensor.untyped_storage().size()

    def data_ptr(self) -> int:
        return int(self._begins)

    def ptr_range(self) -> int:
        return int(self._bytes)


def compiled_launches(launches: list[Launch], first: list[int]) -> list[Launch]:
    """The launches with tensors replaced by descriptions; those with indices in ``first`` come first."""
    order = [*first, *(number for number in range(len(launches)) if number not in set(first))]
    return with_tensors([launches[number] for number in order], TensorAt)
