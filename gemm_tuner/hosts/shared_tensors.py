"""Inputs that configurations share: each call of a host function makes its own, and from one seed they are the same.

Where a tensor lies moves a kernel's time by percents, and finals hold all finalists in memory. So a tensor of the bytes
that an earlier configuration's has now gives way to that one: inputs do, outputs that were written since do not. Needs
torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, cast

from gemm_tuner.core.workload import Launch


class SharedTensors:
    """The tensors' memory of the configurations so far, by place among a call's and by size."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[int, int, Any], Any] = {}

    def shared(self, launches: list[Launch], own: Iterable[Any]) -> list[Launch]:
        """The launches with tensors of earlier ones where these hold the same. own: tensors that are not shared."""
        places: dict[int, Any] = {}
        apart = {one.untyped_storage().data_ptr() for one in own}

        def place(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            if address not in places:
                mine = bytes_of(storage)
                earlier = self._bytes.setdefault((len(places), storage.nbytes(), storage.device), mine)
                same = address not in apart and bool((earlier == mine).all())
                places[address] = (earlier if same else mine).untyped_storage()
            found = places[address]
            if found.data_ptr() == address:
                return tensor
            return tensor.new_empty(0).set_(found, tensor.storage_offset(), tensor.size(), tensor.stride())

        return with_tensors(launches, place)


def bytes_of(storage: Any) -> Any:
    """A tensor of the bytes of a storage."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def with_tensors(launches: list[Launch], replace: Callable[[Any], Any]) -> list[Launch]:
    """The launches with ``replace(tensor)`` for each tensor among the arguments, in tuples and descriptors too."""
    import torch

    def replaced(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return replace(value)
        if isinstance(value, tuple):
            parts = map(replaced, value)
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        base = getattr(value, "base", None)
        if isinstance(base, torch.Tensor) and dataclasses.is_dataclass(value):
            return dataclasses.replace(cast(Any, value), base=replace(base))
        return value

    return [
        (symbol, kernel, grid, tuple(map(replaced, args)), {name: replaced(one) for name, one in kwargs.items()})
        for symbol, kernel, grid, args, kwargs in launches
    ]
