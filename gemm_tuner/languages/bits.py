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
        # Of each piece that was compared: number of its tensor, its first element, and on the device its first element
        # that differs (else any), whether that differs, and its value.
        self._pieces: list[tuple[int, int]] = []
        self._found: list[tuple[Any, Any, Any]] = []
        self._count = 0

    def add(self, other: Any) -> None:
        """Queues a comparison with a tensor on the same device, which may be overwritten afterwards in its stream."""
        import torch

        for begin, first, second in _chunks(self._one, other):
            differs = (first != second).view(torch.uint8)
            place = differs.argmax()
            self._pieces.append((self._count, begin))
            # ``take``, because the host would wait for an index in brackets.
            self._found.append((place, differs.take(place), second.take(place).view(other.dtype)))
        self._count += 1

    def first(self) -> Difference | None:
        """Of the first tensor that differs; None if all are bitwise equal."""
        import torch

        if not self._found:
            return None
        numbers = torch.stack([torch.stack(kind).double() for kind in zip(*self._found, strict=True)]).tolist()
        for (which, begin), place, differs, value in zip(self._pieces, *numbers, strict=True):
            if differs:
                return Difference(which, _index(begin + int(place), self._one), value)
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
