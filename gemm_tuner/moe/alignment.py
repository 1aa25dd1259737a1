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


@dataclass(frozen=True, slots=True)
class Buckets:
    """What rows are sorted by. Bucket ``first`` + e is that of this rank's expert e; rows of other ranks are in the
    buckets behind, one for each of their experts, or where first is 1 all in bucket 0."""

    count: int
    first: int

    def of_ids(self, ids: Ids, experts: int) -> Ids:
        """The bucket of each row. experts: of this rank."""
        import numpy as np

        moved = ids + self.first
        return np.asarray(np.where(ids < experts, moved, 0 if self.first else moved), dtype=np.int32)


@dataclass(frozen=True)
class Alignment:
    """Rows sorted by expert.

    row_ids: int32, indices in the flattened ids; the number of rows (one past the end) marks padding. None without
             sorting; then block b is row b.
    experts: int32, the expert of each block, -1 for other ranks' and for blocks without rows.
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


def align(ids: Ids, experts: int, block: int, length: int, buckets: Buckets | None = None) -> Alignment:
    """ids: (tokens, topk), from ``experts`` on of other ranks. length: of the sorted ids; 0 for the path without
    sorting. buckets: one for each expert by default."""
    import numpy as np

    by = buckets or Buckets(experts, 0)
    if not length:
        flat = ids.ravel()
        return Alignment(None, flat.astype(np.int32), len(flat) * block)
    flat = by.of_ids(ids, experts).ravel()
    counts = np.bincount(flat, minlength=by.count)
    padded = -(-counts // block) * block
    order = np.argsort(flat, kind="stable")
    within = np.arange(len(flat)) - (np.cumsum(counts) - counts)[flat[order]]
    row_ids = np.full(length, len(flat), dtype=np.int32)
    row_ids[(np.cumsum(padded) - padded)[flat[order]] + within] = order
    blocks = np.full(-(-len(row_ids) // block), -1, dtype=np.int32)
    owners = np.arange(by.count) - by.first
    blocks[: int(padded.sum()) // block] = np.repeat(np.where(owners < experts, owners, -1), padded // block)
    return Alignment(row_ids, blocks, int(padded.sum()))
