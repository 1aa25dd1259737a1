"""Shares equal inputs between configurations. Each call of a host function creates its own inputs, which are equal
because they have the same seed.

The address of a tensor changes a kernel's time by percents, and finals have the tensors of all finalists in memory. So
a tensor with the same bytes as one of an earlier configuration is replaced by that one. This applies to inputs;
outputs differ, because they have been written since. Needs torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, cast

from gemm_tuner.core.workload import Launch


class SharedTensors:
    """The tensor storages of the configurations so far, by position in the call and size."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[int, int, Any], Any] = {}

    def shared(self, launches: list[Launch], own: Iterable[Any]) -> list[Launch]:
        """The launches with tensors replaced by equal ones of earlier calls. own: tensors that must not be shared."""
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
    """A tensor view of the bytes of a storage."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def with_tensors(launches: list[Launch], replace: Callable[[Any], Any]) -> list[Launch]:
    """The launches with every tensor argument, also in tuples and descriptors, replaced by ``replace(tensor)``."""
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
