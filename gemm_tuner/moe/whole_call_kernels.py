"""The kernels of a fused MoE layer beside its two GEMMs: alignment, activation and quantisation, and the sum.

They are ours, not a server's: whole calls of one layer are compared with each other by them. Importing this module
needs Triton, and neither torch nor a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def count_rows(ids_ptr, counts_ptr, rows, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """counts[b] += rows of bucket b, of which each expert of this rank has one."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(ids_ptr + row, mask=row < rows, other=0)
    tl.atomic_add(counts_ptr + expert, 1, mask=row < rows)


@triton.jit  # type: ignore[untyped-decorator]
def lay_out(  # type: ignore[no-untyped-def]
    counts_ptr, starts_ptr, owners_ptr, total_ptr, buckets, first, experts, blocks, BLOCK_M: tl.constexpr,
    BUCKETS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of each bucket the first sorted place, of each block of BLOCK_M places the expert, which is that of the bucket
    less ``first``; -1 for no expert of this rank, and behind the last. Each program computes the places of all buckets,
    and the experts of BLOCK blocks."""
    bucket = tl.arange(0, BUCKETS)
    count = tl.load(counts_ptr + bucket, mask=bucket < buckets, other=0)
    padded = (count + BLOCK_M - 1) // BLOCK_M * BLOCK_M
    ends = tl.cumsum(padded, 0)
    if tl.program_id(0) == 0:
        tl.store(starts_ptr + bucket, ends - padded, mask=bucket < buckets)
        tl.store(total_ptr, tl.sum(padded, 0))
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    owner = tl.sum((ends[None, :] <= block[:, None] * BLOCK_M).to(tl.int32), 1) - first
    tl.store(owners_ptr + block, tl.where(owner < experts, owner, -1), mask=block < blocks)


@triton.jit  # type: ignore[untyped-decorator]
def place_rows(ids_ptr, starts_ptr, taken_ptr, row_ids_ptr, rows, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each row takes a free place of its bucket."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(ids_ptr + row, mask=row < rows, other=0)
    place = tl.load(starts_ptr + expert) + tl.atomic_add(taken_ptr + expert, 1, mask=row < rows)
    tl.store(row_ids_ptr + place, row, mask=row < rows)


@triton.jit  # type: ignore[untyped-decorator]
def nonlinear(x, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """An activation without its gate; any other kind leaves x."""
    if KIND == "silu":
        y = x / (1 + tl.exp(-x))
    elif KIND == "gelu":
        y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif KIND == "gelu_tanh":
        y = x / (1 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    elif KIND == "relu2":
        y = tl.maximum(x, 0.0) * tl.maximum(x, 0.0)
    elif KIND == "swigluoai":
        x = tl.minimum(x, 7.0)
        y = x / (1 + tl.exp(-1.702 * x))
    elif KIND == "swiglustep":
        y = tl.minimum(x / (1 + tl.exp(-x)), 7.0)
    else:
        y = x
    return y


@triton.jit  # type: ignore[untyped-decorator]
def activate(  # type: ignore[no-untyped-def]
    from_ptr, to_ptr, scale_ptr, places_ptr, columns, groups, rows, GATE: tl.constexpr, KIND: tl.constexpr,
    SCALING: tl.constexpr, LARGEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row's block of ``columns`` values, from twice as many where there is a gate, quantised.

    GATE: "" for none, "halves", or "pairs" of gate and value. SCALING: "none"; "given", one scale for all; "made", one
    a row and block, which is stored. places_ptr: the rows of sorted places, of which padding, ``rows`` and more, is
    left out; or None.
    """
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if places_ptr is not None:  # noqa: SIM102 (a condition of the compiler, and one of the GPU)
        if tl.load(places_ptr + row) >= rows:
            return
    column = group * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    if GATE == "halves":
        gate_at, value_at, stride = column, columns + column, 2 * columns
    elif GATE == "pairs":
        gate_at, value_at, stride = 2 * column, 2 * column + 1, 2 * columns
    else:
        gate_at, value_at, stride = column, column, columns
    x = tl.load(from_ptr + row * stride + gate_at, mask=inside, other=0.0).to(tl.float32)
    y = nonlinear(x, KIND)
    if GATE != "":
        value = tl.load(from_ptr + row * stride + value_at, mask=inside, other=0.0).to(tl.float32)
        if KIND == "swigluoai":
            value = tl.minimum(tl.maximum(value, -7.0), 7.0) + 1
        elif KIND == "swiglustep":
            value = tl.minimum(tl.maximum(value, -7.0), 7.0)
        y = y * value
    if SCALING == "made":
        scale = tl.maximum(tl.max(tl.abs(y), 0), 1e-10) / LARGEST
        tl.store(scale_ptr + row * groups + group, scale)
        y = y / scale
    elif SCALING == "given":
        y = y / tl.load(scale_ptr)
    if SCALING != "none":
        y = tl.minimum(tl.maximum(y, -LARGEST), LARGEST)
    tl.store(to_ptr + row * columns + column, y.to(to_ptr.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def add_up(rows_ptr, out_ptr, columns, TOPK: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of each token's TOPK rows."""
    token, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for one in range(TOPK):
        at = rows_ptr + (token * TOPK + one) * columns + column
        total += tl.load(at, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * columns + column, total.to(out_ptr.dtype.element_ty), mask=column < columns)
