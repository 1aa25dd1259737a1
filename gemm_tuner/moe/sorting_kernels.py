"""The kernels of a fused MoE layer whose rows are sorted by expert without padding: where each row goes, and the sum.

Importing this module needs Triton, and neither torch nor a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def start_buckets(counts_ptr, starts_ptr, buckets, BUCKETS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first place of each expert, and of rows of other ranks, which are the last bucket. One program."""
    bucket = tl.arange(0, BUCKETS)
    count = tl.load(counts_ptr + bucket, mask=bucket < buckets, other=0)
    tl.store(starts_ptr + bucket, tl.cumsum(count, 0) - count, mask=bucket < buckets)


@triton.jit  # type: ignore[untyped-decorator]
def sort_rows(  # type: ignore[no-untyped-def]
    ids_ptr, starts_ptr, taken_ptr, router_ptr, tokens_ptr, weights_ptr, places_ptr, rows, TOPK: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Each row takes a free place of its bucket, and leaves its token and router weight there."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = row < rows
    expert = tl.load(ids_ptr + row, mask=real, other=0)
    place = tl.load(starts_ptr + expert) + tl.atomic_add(taken_ptr + expert, 1, mask=real)
    tl.store(tokens_ptr + place, row // TOPK, mask=real)
    tl.store(weights_ptr + place, tl.load(router_ptr + row, mask=real, other=0.0), mask=real)
    tl.store(places_ptr + row, place, mask=real)


@triton.jit  # type: ignore[untyped-decorator]
def add_up_places(  # type: ignore[no-untyped-def]
    rows_ptr, places_ptr, total_ptr, out_ptr, columns, TOPK: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum of the rows at each token's TOPK places, without those from *total_ptr on, of other ranks."""
    mine = tl.load(total_ptr)
    token, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for one in range(TOPK):
        place = tl.load(places_ptr + token * TOPK + one).to(tl.int64)
        there = column < tl.where(place < mine, columns, 0)
        total += tl.load(rows_ptr + place * columns + column, mask=there, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * columns + column, total.to(out_ptr.dtype.element_ty), mask=column < columns)
