"""Places operands at other addresses in each finals process, because addresses change a kernel's time by percents."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
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

    def moved(self, sets: Sequence[Any]) -> list[Any]:
        """Copies of sets of operands, each a dataclass, with each tensor in its own buffer at its own offset, also the
        tensors of dataclasses in a dict. Sets that share a tensor share its copy."""
        copies: dict[int, Any] = {}  # by the tensor's id, which is unique while ``sets`` has it
        return [self._moved(one, copies) for one in sets] if self._moves else list(sets)

    def _moved(self, operands: Any, copies: dict[int, Any]) -> Any:
        changed: dict[str, Any] = {}
        for name in [field.name for field in fields(operands)]:
            value = getattr(operands, name)
            if hasattr(value, "data_ptr"):
                if id(value) not in copies:
                    copies[id(value)] = self._copy(value)
                changed[name] = copies[id(value)]
            elif isinstance(value, dict) and value and all(map(is_dataclass, value.values())):
                changed[name] = {key: self._moved(one, copies) for key, one in value.items()}
        return replace(operands, **changed)

    def _copy(self, tensor: Any) -> Any:
        """A copy at an offset; the tensor itself if there is no memory for both."""
        offset = self._dice.randrange(PAGE_BYTES // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        size = tensor.numel() * tensor.element_size()
        if size < LARGE_BYTES <= size + offset:
            offset = 0
        try:
            buffer = self._bytes(offset + size, tensor.device)
        except RuntimeError:
            return tensor
        place = buffer[offset : offset + size].view(tensor.dtype).view(tensor.shape)
        return place.copy_(tensor)
