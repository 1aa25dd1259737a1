"""Limits of the hardware and of the kernels. These rules are never skipped.

Each rule says True for the configurations that it keeps. c: columns, p: GemmProblem, d: Device.
"""

import numpy as np

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.space.rule import VALIDITY, rule


@rule(VALIDITY)
def operands_fit_memory(c, p, d):
    """A, B, C and the split-K workspace must fit into the GPU's memory."""
    workspace_bytes = np.where(c.SPLIT_K > 1, c.SPLIT_K * float(p.m * p.n * 4), 0.0)
    return workspace_bytes + p.bytes_moved <= d.memory_bytes


@rule(VALIDITY)
def indices_fit_32_bits(c, p, d):
    """The kernel counts rows, columns, blocks of K and tiles in 32-bit integers."""
    limit = 2**31 - 1
    tiles = np.ceil(p.m / c.BLOCK_SIZE_M) * np.ceil(p.n / c.BLOCK_SIZE_N)
    rows_and_columns = np.maximum(p.m + c.BLOCK_SIZE_M, p.n + c.BLOCK_SIZE_N)
    return (rows_and_columns <= limit) & (p.k + c.BLOCK_SIZE_K * c.SPLIT_K <= limit) & (tiles <= limit)


@rule(VALIDITY)
def split_k_fits_grid(c, p, d):
    """SPLIT_K is the grid's second axis, which has at most 65535 programs (CUDA C Programming Guide)."""
    return c.SPLIT_K <= 65535


@rule(VALIDITY)
def block_holds_dot(c, p, d):
    """tl.dot takes no block under 16 x 16 x 16 on any of the architectures here."""
    return (c.BLOCK_SIZE_M >= 16) & (c.BLOCK_SIZE_N >= 16) & (c.BLOCK_SIZE_K >= 16)


@rule(VALIDITY, backend="hip")
def block_holds_mfma(c, p, d):
    """A tile must hold one matrix instruction: BLOCK_SIZE_M and _N not below matrix_instr_nonkdim."""
    return (c.BLOCK_SIZE_M >= c.matrix_instr_nonkdim) & (c.BLOCK_SIZE_N >= c.matrix_instr_nonkdim)


@rule(VALIDITY)
def threads_fit_block(c, p, d):
    """A block has at most 1024 threads."""
    return c.num_warps * d.target.warp_size <= 1024


@rule(VALIDITY, families=("gemm_tile",), backend="cuda")
def shared_memory_fits(c, p, d):
    """The pipeline's tiles of A and B must fit into shared memory (docs/rules.md, "Shared memory").

    Hopper's and Blackwell's wgmma and tcgen05 (BLOCK_SIZE_M >= 64, whole warp groups, 16-bit types) keep
    num_stages tiles in flight, mma.sync keeps num_stages - 1; tcgen05 adds a barrier of 16 bytes.
    """
    size_a, size_b = DTYPES[p.dtype_a].size_bytes, DTYPES[p.dtype_b].size_bytes
    ring_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + c.BLOCK_SIZE_N * size_b)
    has_warpgroup_mma = d.target.arch not in ("sm_80",) and size_a <= 2
    warpgroup = (c.BLOCK_SIZE_M >= 64) & (c.num_warps % 4 == 0) & has_warpgroup_mma
    buffers = np.where(warpgroup, c.num_stages, np.maximum(1, c.num_stages - 1))
    barrier_bytes = np.where(warpgroup & (d.target.arch == "sm_100"), 16, 0)
    return ring_bytes * buffers + barrier_bytes <= d.shared_memory_bytes


def copies_straight_to_lds(arch):
    """Whether this Triton loads past the registers on CDNA 4: 3.9 does unless told not to, 3.6 only if told."""
    if arch != "gfx950":
        return False
    from triton import knobs

    return knobs.amd.use_async_copy is not False


@rule(VALIDITY, families=("gemm_tile",), backend="hip")
def lds_fits(c, p, d):
    """The tiles of A and B must fit into LDS (docs/rules.md, "Shared memory").

    At num_stages 1 the larger one, else num_stages - 1 of both; where loads go straight to LDS all
    num_stages of both, those of 16-bit types with 16 bytes or more of padding a KiB.
    """
    size_a, size_b = DTYPES[p.dtype_a].size_bytes, DTYPES[p.dtype_b].size_bytes
    a_bytes = c.BLOCK_SIZE_M * c.BLOCK_SIZE_K * size_a
    b_bytes = c.BLOCK_SIZE_N * c.BLOCK_SIZE_K * size_b
    if copies_straight_to_lds(d.target.arch):
        pipelined = (a_bytes + b_bytes) * c.num_stages * (65 / 64 if size_a <= 2 else 1)
    else:
        pipelined = (a_bytes + b_bytes) * np.maximum(1, c.num_stages - 1)
    return np.where(c.num_stages <= 1, np.maximum(a_bytes, b_bytes), pipelined) <= d.shared_memory_bytes
