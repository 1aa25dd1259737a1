"""Shows whether tensors were written to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Length of a row of words.
ROW = 1024


class Seal:
    """Sums of some tensors, by which a later write to them shows.

    A tensor is read as words of up to 64 bits in rows of ROW. Its sums are those of all rows and of all columns, modulo
    2**64, so that words that trade places show, too, as of operands that a kernel rearranges in place. Words behind the
    last whole row are kept as they are. That is read twice and needs a thousandth of the tensors' memory.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        """tensors: None for one that is not there; at least one is."""
        self._tensors = [tensor for tensor in tensors if tensor is not None]
        self._sums = _sums(self._tensors)

    def is_broken(self) -> Any:
        """Whether a tensor has changed, as a tensor of one bool on their device: the host does not wait for it."""
        return (_sums(self._tensors) != self._sums).any()


def are_intact(seals: Iterable[Seal]) -> bool:
    """Whether nothing has changed under all of these seals, which are of tensors on one device."""
    import torch

    broken = [seal.is_broken() for seal in seals]
    return not broken or not bool(torch.stack(broken).any())


def _sums(tensors: list[Any]) -> Any:
    """All sums of these tensors in one."""
    import torch

    parts = []
    for tensor in tensors:
        words = _words(tensor)
        whole = words.numel() // ROW * ROW
        table = words[:whole].view(-1, ROW)
        parts += [table.sum(0, dtype=torch.int64), table.sum(1, dtype=torch.int64), words[whole:].to(torch.int64)]
    return torch.cat(parts)


def _words(tensor: Any) -> Any:
    """The elements of a tensor in order, as the longest integers that their bytes are made of; a view of a contiguous
    one."""
    import torch

    tensor = tensor.detach().contiguous()
    size_bytes = tensor.numel() * tensor.element_size()
    start = tensor.storage_offset() * tensor.element_size()
    kinds = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
    width = next(width for width in kinds if size_bytes % width == 0 and start % width == 0)
    return tensor.view(-1).view(torch.uint8).view(kinds[width])
