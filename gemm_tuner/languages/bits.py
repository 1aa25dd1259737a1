"""Bitwise comparison of tensors, for checks that repeated calls give equal results."""

from __future__ import annotations

from typing import Any

import numpy as np


def first_difference(one: Any, other: Any) -> tuple[int, ...] | None:
    """The index of the first element whose bits differ; None if the tensors are bitwise equal."""
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    same = one.contiguous().view(bits) == other.contiguous().view(bits)
    if bool(same.all()):
        return None
    flat = int((~same).flatten().to(torch.uint8).argmax())
    return tuple(int(part) for part in np.unravel_index(flat, tuple(one.shape)))
