"""Attention, forward: softmax(q k' scale) v of each head in one pass over k and v; and its host function."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": rows, "BLOCK_N": columns}, num_warps=warps, num_stages=stages)
        for rows in (64, 128)
        for columns in (32, 64, 128)
        for warps in (4, 8)
        for stages in (2, 3)
    ],
    key=["length", "HEAD", "CAUSAL"],
)
@triton.jit
def attention_rows(
    out, q, k, v, scale, length, CAUSAL: tl.constexpr, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """A program computes BLOCK_M rows of one head; all tensors are (heads, length, HEAD), row-major. Sums are kept
    relative to the highest score so far, and shrunk where a block has a higher one."""
    start = tl.program_id(1).to(tl.int64) * length * HEAD
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD)
    at = start + rows[:, None] * HEAD + dims[None, :]
    queries = tl.load(q + at, mask=rows[:, None] < length, other=0.0)
    highest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, HEAD), tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BLOCK_M, length) if CAUSAL else length
    for first in range(0, end, BLOCK_N):
        columns = first + tl.arange(0, BLOCK_N)
        inside = columns < length
        keys = tl.load(k + start + columns[None, :] * HEAD + dims[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(queries, keys) * (scale * LOG2_E)
        seen = inside[None, :] & (columns[None, :] <= rows[:, None]) if CAUSAL else inside[None, :]
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v + start + columns[:, None] * HEAD + dims[None, :], mask=inside[:, None], other=0.0)
        sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
        highest = higher
    tl.store(out + at, (sums / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < length)


def run(batch, heads, length, head, causal):
    q, k, v = (torch.randn(batch, heads, length, head, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)

    def grid(meta):
        return triton.cdiv(length, meta["BLOCK_M"]), batch * heads

    attention_rows[grid](out, q, k, v, head**-0.5, length, CAUSAL=causal, HEAD=head)
    return out


def reference(q, k, v, causal, dtype):
    q, k, v = (one.to(dtype) for one in (q, k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -float("inf"))
    return torch.softmax(scores, -1) @ v
