"""Products of several pairs of matrices of different sizes in one launch, and the host function."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}, num_warps=warps, num_stages=3)
        for rows, columns, warps in ((64, 64, 4), (64, 128, 4), (128, 128, 4), (128, 128, 8), (128, 256, 8))
        for depth in (32, 64)
    ],
    key=["groups"],
)
@triton.jit
def grouped_matmul(
    addresses,
    sizes,
    groups,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Each of PROGRAMS programs takes every PROGRAMS-th tile, counted over all products. addresses: of A, B and C of
    each group, fp16 and row-major. sizes: its M, N and K."""
    tile = tl.program_id(0)
    before = 0
    for group in range(groups):
        m, n, k = tl.load(sizes + 3 * group), tl.load(sizes + 3 * group + 1), tl.load(sizes + 3 * group + 2)
        a = tl.load(addresses + 3 * group).to(tl.pointer_type(tl.float16))
        b = tl.load(addresses + 3 * group + 1).to(tl.pointer_type(tl.float16))
        c = tl.load(addresses + 3 * group + 2).to(tl.pointer_type(tl.float16))
        tiles_n = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(m, BLOCK_M) * tiles_n
        while tile < before + tiles:
            rows = (tile - before) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (tile - before) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for first in range(0, k, BLOCK_K):
                depth = first + tl.arange(0, BLOCK_K)
                mask_a = (rows[:, None] < m) & (depth[None, :] < k)
                mask_b = (depth[:, None] < k) & (columns[None, :] < n)
                left = tl.load(a + rows[:, None] * k + depth[None, :], mask=mask_a, other=0.0)
                right = tl.load(b + depth[:, None] * n + columns[None, :], mask=mask_b, other=0.0)
                sums = tl.dot(left, right, sums)
            inside = (rows[:, None] < m) & (columns[None, :] < n)
            tl.store(c + rows[:, None] * n + columns[None, :], sums.to(tl.float16), mask=inside)
            tile += PROGRAMS
        before += tiles


def pairs(groups, rows, columns, depth):
    """Of each group one row of tiles less than of the one before."""
    like = {"device": "cuda", "dtype": torch.float16}
    sizes = [(max(1, rows - 128 * group), columns, depth) for group in range(groups)]
    return [(torch.randn(m, k, **like), torch.randn(k, n, **like)) for m, n, k in sizes]


def run(groups, rows, columns, depth):
    inputs = pairs(groups, rows, columns, depth)
    outputs = [torch.empty(a.shape[0], b.shape[1], device="cuda", dtype=torch.float16) for a, b in inputs]
    at = [one.data_ptr() for (a, b), c in zip(inputs, outputs, strict=True) for one in (a, b, c)]
    sizes = [size for a, b in inputs for size in (a.shape[0], b.shape[1], a.shape[1])]
    programs = torch.cuda.get_device_properties("cuda").multi_processor_count
    grouped_matmul[(programs,)](
        torch.tensor(at, device="cuda"),
        torch.tensor(sizes, device="cuda", dtype=torch.int32),
        groups,
        PROGRAMS=programs,
    )
    return outputs


def reference(groups, rows, columns, depth, dtype):
    """Kernels get addresses, so the inputs are made again: the random numbers are the same."""
    return [a.to(dtype) @ b.to(dtype) for a, b in pairs(groups, rows, columns, depth)]
