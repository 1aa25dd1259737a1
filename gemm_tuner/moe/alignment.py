"""Sorts routed rows by expert, each expert padded to whole blocks, as the servers do before both GEMMs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line imports this module without needing numpy
    import numpy as np
    import numpy.typing as npt

    from gemm_tuner.moe.routing import Ids

# vLLM does not sort rows if there are at most experts / SPARSE of them.
SPARSE = 4


@dataclass(frozen=True)
class Alignment:
    """Rows sorted by expert.

    row_ids: int32, indices in the flattened ids; the number of rows (one past the end) marks padding. None without
             sorting; then block b is row b.
    experts: int32, the expert of each block.
    total:   number of rows with padding.
    """

    row_ids: npt.NDArray[np.int32] | None
    experts: npt.NDArray[np.int32]
    total: int


def room(rows: int, experts: int, block: int) -> int:
    """The length of the sorted ids: an upper bound for any routing of ``rows`` rows."""
    most = rows + experts * (block - 1)
    return min(rows * block, most) if rows < experts else most


def is_sparse(rows: int, experts: int) -> bool:
    """Whether vLLM launches these rows without sorting them."""
    return rows * SPARSE <= experts


def align(ids: Ids, experts: int, block: int, length: int) -> Alignment:
    """ids: (tokens, topk). length: of the sorted ids; 0 for the path without sorting."""
    import numpy as np

    flat = ids.ravel()
    if not length:
        return Alignment(None, flat.astype(np.int32), len(flat) * block)
    counts = np.bincount(flat, minlength=experts)
    padded = -(-counts // block) * block
    order = np.argsort(flat, kind="stable")
    within = np.arange(len(flat)) - (np.cumsum(counts) - counts)[flat[order]]
    row_ids = np.full(length, len(flat), dtype=np.int32)
    row_ids[(np.cumsum(padded) - padded)[flat[order]] + within] = order
    blocks = np.full(-(-len(row_ids) // block), -1, dtype=np.int32)
    blocks[: int(padded.sum()) // block] = np.repeat(np.arange(experts), padded // block)
    return Alignment(row_ids, blocks, int(padded.sum()))
