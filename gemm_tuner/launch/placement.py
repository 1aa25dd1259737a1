"""Where operands lie in memory: elsewhere in every process of finals, since that moves a kernel's time by percents."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

# Offsets are multiples of this, to which torch's allocator aligns too: kernels and libraries choose by alignment.
ALIGNMENT_BYTES = 512
# A large page of a GPU: offsets and padding stay within a few of them.
PAGE_BYTES = 2 * 2**20
MOST_PADDING_PAGES = 16
# On AMD, Triton compiles another kernel for pointers into more than this.
LARGE_BYTES = 2**31


class Placement:
    """Offsets of one process, drawn by seed and number of the process. Process 0 leaves operands where they are."""

    def __init__(self, seed: int, process: int, device: str) -> None:
        self._dice = random.Random(f"placement {seed} {process}")
        self._moves = process > 0
        # Held as long as this: all later allocations lie behind it.
        self._padding = self._bytes(self._dice.randrange(1, MOST_PADDING_PAGES) * PAGE_BYTES, device)

    def _bytes(self, count: int, device: str) -> Any:
        import torch

        return torch.empty(count, dtype=torch.uint8, device=device) if self._moves else None

    def moved(self, operands: Any) -> Any:
        """The same dataclass with each of its tensors in a buffer of its own, at an offset of its own."""
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
