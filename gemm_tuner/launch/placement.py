"""Places operands at other addresses in each finals process, because addresses change a kernel's time by percents."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

# Offsets are multiples of this, as in torch's allocator, because libraries select kernels by alignment.
ALIGNMENT_BYTES = 512
# A large page of a GPU; offsets and padding are at most a few pages.
PAGE_BYTES = 2 * 2**20
MOST_PADDING_PAGES = 16
# On AMD, Triton compiles different kernels for tensors larger than this.
LARGE_BYTES = 2**31


class Placement:
    """Address offsets for one process, random by (seed, number of the process). Process 0 does not move operands."""

    def __init__(self, seed: int, process: int, device: str) -> None:
        self._dice = random.Random(f"placement {seed} {process}")
        self._moves = process > 0
        # Padding that shifts all later allocations; kept alive by this object.
        self._padding = self._bytes(self._dice.randrange(1, MOST_PADDING_PAGES) * PAGE_BYTES, device)

    def _bytes(self, count: int, device: str) -> Any:
        import torch

        return torch.empty(count, dtype=torch.uint8, device=device) if self._moves else None

    def moved(self, operands: Any) -> Any:
        """A copy of the dataclass with each tensor in its own buffer at its own offset."""
        if not self._moves:
            return operands
        for name in [field.name for field in fields(operands)]:
            if hasattr(getattr(operands, name), "data_ptr"):
                operands = replace(operands, **{name: self._copy(getattr(operands, name))})
        return operands

    def _copy(self, tensor: Any) -> Any:
        offset = self._dice.randrange(PAGE_BYTES // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        size = tensor.numel() * tensor.element_size()
        if size < LARGE_BYTES <= size + offset:
            offset = 0
        buffer = self._bytes(offset + size, tensor.device)
        place = buffer[offset : offset + size].view(tensor.dtype).view(tensor.shape)
        return place.copy_(tensor)
