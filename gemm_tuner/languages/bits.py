"""Bitwise comparison of tensors, for checks that repeated calls give equal results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Elements that are compared at a time.
CHUNK = 2**24


def first_difference(one: Any, other: Any) -> tuple[int, ...] | None:
    """The index of the first element whose bits differ; None if the tensors are bitwise equal. Either may lie in the
    host's memory."""
    for begin, first, second in _chunks(one, other):
        same = first == second.to(first.device)
        if not bool(same.all()):
            return _index(begin + int((~same).byte().argmax()), one)
    return None


@dataclass(frozen=True, slots=True)
class Difference:
    """which: number of the tensor that differs, in order of ``add``. index: of its first element that does. value: of
    that element."""

    which: int
    index: tuple[int, ...]
    value: float


class Comparisons:
    """Compares tensors with ``one`` bit by bit. The device makes the comparisons in order, and the host waits for it
    only when it asks for their result."""

    def __init__(self, one: Any) -> None:
        self._one = one
        self._found: list[Any] = []
        self._pieces = 0

    def add(self, other: Any) -> None:
        """Queues a comparison with a tensor on the same device, which may be overwritten afterwards in its stream."""
        import torch

        self._pieces = 0
        for begin, first, second in _chunks(self._one, other):
            differs = (first != second).byte()
            place = differs.argmax()
            # ``take``, because the host would wait for an index in brackets.
            found = differs.take(place), place + begin, second.take(place).view(other.dtype)
            self._found.append(torch.stack([number.double() for number in found]))
            self._pieces += 1

    def first(self) -> Difference | None:
        """Of the first tensor that differs; None if all are bitwise equal."""
        import torch

        if not self._found:
            return None
        for number, (differs, place, value) in enumerate(torch.stack(self._found).tolist()):
            if differs:
                return Difference(number // self._pieces, _index(int(place), self._one), value)
        return None


def _chunks(one: Any, other: Any) -> Iterator[tuple[int, Any, Any]]:
    """(first element, bits of one, bits of the other) of pieces of CHUNK elements."""
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    first, second = (each.contiguous().view(bits).reshape(-1) for each in (one, other))
    for begin in range(0, first.numel(), CHUNK):
        yield begin, first[begin : begin + CHUNK], second[begin : begin + CHUNK]


def _index(flat: int, tensor: Any) -> tuple[int, ...]:
    import numpy as np

    return tuple(int(part) for part in np.unravel_index(flat, tuple(tensor.shape)))
