"""Shows whether tensors were written to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Length of a row of words.
ROW = 1024
# Words that are added up at a time: torch first makes a copy of them in 64 bits, of at most eight times their bytes.
PIECE = 2**24


class Seal:
    """Sums of some tensors, by which a later write to them shows.

    A tensor is read as words of up to 32 bits in rows of ROW. Its sums are those of all rows and of all columns, in 64
    bits, so that words that trade places show, too, as of operands that a kernel rearranges in place, and so do signs.
    Words behind the last whole row are kept as they are. That needs less than a hundredth of the tensors' memory, and
    that of copies of PIECE words.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        """tensors: None for one that is not there; at least one is."""
        self._tensors = [tensor for tensor in tensors if tensor is not None]
        # Views of contiguous tensors; others are read anew whenever they are looked at.
        self._rows = [_rows(tensor) if tensor.is_contiguous() else None for tensor in self._tensors]
        self.sums = _joined(self.sums_now())

    def sums_now(self) -> list[Any]:
        """The parts of what ``sums`` would be now."""
        parts = []
        for tensor, rows in zip(self._tensors, self._rows, strict=True):
            parts += _sums(*(rows or _rows(tensor.contiguous())))
        return parts

    def is_broken(self) -> Any:
        """Whether a tensor has changed, as a tensor of one bool on their device: the host does not wait for it."""
        return (_joined(self.sums_now()) != self.sums).any()


def are_intact(seals: Iterable[Seal]) -> bool:
    """Whether nothing has changed under all of these seals, which are of tensors on one device."""
    import torch

    every = list(seals)
    now = [part for seal in every for part in seal.sums_now()]
    return not every or torch.equal(_joined(now), _joined([seal.sums for seal in every]))


def _joined(parts: list[Any]) -> Any:
    import torch

    return torch.cat(parts)


def _sums(table: Any, rest: Any) -> list[Any]:
    import torch

    if not len(table):
        return [rest.to(torch.int64)]
    of_rows: list[Any] = []
    of_columns = torch.zeros(ROW, dtype=torch.int64, device=table.device)
    for piece in table.split(PIECE // ROW):
        wide = piece.to(torch.int64)
        of_rows.append(wide.sum(1))
        of_columns += wide.sum(0)
        del wide  # before the next one is made
    return [*of_rows, of_columns, rest.to(torch.int64)]


def _rows(tensor: Any) -> tuple[Any, Any]:
    """A contiguous tensor as the longest integers that its bytes are made of: (whole rows of ROW, the words behind)."""
    import torch

    size_bytes = tensor.numel() * tensor.element_size()
    start = tensor.storage_offset() * tensor.element_size()
    kinds = {4: torch.int32, 2: torch.int16, 1: torch.uint8}
    width = next(width for width in kinds if size_bytes % width == 0 and start % width == 0)
    # One element may be contiguous with any stride, so that ``view(-1)`` may not have 1.
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    words = flat.view(torch.uint8).view(kinds[width])
    whole = words.numel() // ROW * ROW
    return words[:whole].view(-1, ROW), words[whole:]
