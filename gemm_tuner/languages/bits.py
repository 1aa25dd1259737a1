"""Bitwise comparison of tensors, for checks that repeated calls give equal results."""

from __future__ import annotations

from typing import Any

# Elements that are compared at a time.
CHUNK = 2**24


def first_difference(one: Any, other: Any) -> tuple[int, ...] | None:
    """The index of the first element whose bits differ; None if the tensors are bitwise equal. Either may lie in the
    host's memory."""
    import numpy as np
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    first, second = one.contiguous().view(bits).reshape(-1), other.contiguous().view(bits).reshape(-1)
    for begin in range(0, first.numel(), CHUNK):
        piece = first[begin : begin + CHUNK]
        same = piece == second[begin : begin + CHUNK].to(piece.device)
        if not bool(same.all()):
            flat = begin + int((~same).to(torch.uint8).argmax())
            return tuple(int(part) for part in np.unravel_index(flat, tuple(one.shape)))
    return None
