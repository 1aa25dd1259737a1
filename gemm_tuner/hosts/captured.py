"""Launches that were captured from host code on tensors without memory, as a compile takes them. Needs torch."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from gemm_tuner.core.workload import Launch


class TensorAt:
    """What Triton's compiler asks of a tensor: its type, where it begins, and how much its storage holds, in bytes.

    The extent matters on AMD, where Triton addresses buffers under 2 GiB with 32-bit offsets.
    """

    def __init__(self, tensor: Any) -> None:
        self.dtype = tensor.dtype
        self._begins = tensor.storage_offset() * tensor.element_size()
        self._bytes = tensor.untyped_storage().size()

    def data_ptr(self) -> int:
        return int(self._begins)

    def ptr_range(self) -> int:
        return int(self._bytes)


def compiled_launches(launches: list[Launch], first: list[int]) -> list[Launch]:
    """The launches with descriptions of their tensors, those with the numbers ``first`` before the others."""
    order = [*first, *(number for number in range(len(launches)) if number not in set(first))]
    return [
        (symbol, kernel, grid, tuple(map(described, args)), {name: described(one) for name, one in kwargs.items()})
        for symbol, kernel, grid, args, kwargs in (launches[number] for number in order)
    ]


def described(value: Any) -> Any:
    """A tensor, or those in descriptors and tuples, by description; all else as it is."""
    import torch

    if isinstance(value, torch.Tensor):
        return TensorAt(value)
    if isinstance(value, tuple):
        parts = [described(one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    base = getattr(value, "base", None)
    if isinstance(base, torch.Tensor) and dataclasses.is_dataclass(value):
        return dataclasses.replace(cast(Any, value), base=TensorAt(base))
    return value
