"""Limits of the hardware and of the kernels. These rules are never skipped.

Each rule says True for the configurations that it keeps. c: columns, p: GemmProblem, d: Device.
"""

import numpy as np

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm import descriptors
from gemm_tuner.gemm.families.family import names_of
from gemm_tuner.gemm.problem import SCALE_BLOCK
from gemm_tuner.space.rule import VALIDITY, rule

BY_DESCRIPTORS = names_of(lambda family: family.by_descriptors and family.language == "triton")
PACKING = names_of(lambda family: family.packs and family.language == "triton")
CUTE = names_of(lambda family: family.language == "cute")
PACKS = names_of(lambda family: family.packs)
LEAST_PACKED = 256  # elements of a row of the tile that a program packs


@rule(VALIDITY)
def type_has_matrix_instruction(c, p, d):
    """The architecture multiplies no matrices of this type: its space file gives no rate for it."""
    rates = dict(d.matmul_tflops)
    return np.full(c.BLOCK_SIZE_M.shape, p.rate_key in rates and (p.dtype_b in rates or p.dtype_b == p.dtype_a))


@rule(VALIDITY, families=(*BY_DESCRIPTORS, *PACKS, "gemv"))
def one_matrix_a_call(c, p, d):
    """Batches are for gemm_tile: the other families compute one matrix a call."""
    return np.full(c.BLOCK_SIZE_M.shape, p.batch == 1)


@rule(VALIDITY, families=(*BY_DESCRIPTORS, "gemm_cute"), backend="cuda")
def rows_fit_descriptors(c, p, d):
    """TMA descriptors take rows of whole 16 bytes (CUDA Driver API, cuTensorMapEncodeTiled: globalStrides)."""
    if not d.target.facts.tma:
        return c.BLOCK_SIZE_M > 0
    return np.full(c.BLOCK_SIZE_M.shape, descriptors.rows_fit_descriptors(p))


@rule(VALIDITY)
def clusters_of_class(c, p, d):
    """Clusters, pingpong and swapped operands are for families in CuTe DSL."""
    able = c.family.isin(CUTE)
    if able.all():
        return able
    plain = (c.CLUSTER_M == 1) & (c.CLUSTER_N == 1) & (c.PINGPONG == 0) & (c.SWAP_AB == 0)
    return plain | able


@rule(VALIDITY)
def blocks_for_what_packs(c, p, d):
    """PACK_BLOCK is the tile of a family that packs, 256 elements or more; the others have none."""
    return np.where(c.family.isin(PACKS), c.PACK_BLOCK >= LEAST_PACKED, c.PACK_BLOCK == 0)


@rule(VALIDITY)
def rows_of_c_by_descriptor(c, p, d):
    """ROW_STEP is for gemm_packed with TMA, A row-major, B column-major, K whole; its rows of C are whole 16 bytes.

    Tiles then begin at any column, which B's descriptor takes only where columns lie along its outer side.
    """
    one = c.ROW_STEP == 1
    if one.all():
        return one
    able = c.family.isin(PACKING) & d.target.facts.tma & (c.SPLIT_K == 1) & (p.scaling != "block")
    able &= (p.layout_a == "row") & (p.layout_b == "col")
    whole = c.ROW_STEP * p.n * DTYPES[p.dtype_c].size_bytes % descriptors.CHUNK_BYTES == 0
    return one | (able & whole & (c.ROW_STEP * p.n < 2**31) & (c.ROW_STEP <= p.m))


@rule(VALIDITY)
def columns_in_thirds(c, p, d):
    """BLOCK_SIZE_N of 3 times a power of two is summed and stored in thirds: EPILOGUE_SUBTILE 3, no block scales."""
    thirds = c.BLOCK_SIZE_N % 3 == 0
    able = c.family.isin(("gemm_persistent", *PACKING)) & d.target.facts.tma & (p.scaling != "block")
    stored = np.where(thirds, able & (c.EPILOGUE_SUBTILE == 3), c.EPILOGUE_SUBTILE != 3)
    return stored | c.family.isin(CUTE)


@rule(VALIDITY)
def part_holds_columns(c, p, d):
    """A part of the epilogue has 16 columns or more."""
    return (c.EPILOGUE_SUBTILE == 1) | (c.BLOCK_SIZE_N >= 16 * c.EPILOGUE_SUBTILE)


@rule(VALIDITY, families=("gemv",))
def few_rows(c, p, d):
    """gemv has all its rows, the smaller of M and N, in BLOCK_SIZE_M, which is at most 16."""
    return (min(p.m, p.n) <= c.BLOCK_SIZE_M) & (c.BLOCK_SIZE_M <= 16)


@rule(VALIDITY, families=("gemv",))
def scales_of_whole_rows(c, p, d):
    """gemv applies scales to whole sums: block scales are for the other families."""
    return np.full(c.BLOCK_SIZE_M.shape, p.scaling != "block")


@rule(VALIDITY)
def block_divides_scale_group(c, p, d):
    """With block scales, a block of K lies within one group of 128."""
    return (p.scaling != "block") | (SCALE_BLOCK % c.BLOCK_SIZE_K == 0)


@rule(VALIDITY, families=("gemm_split_k",))
def two_slices_or_more(c, p, d):
    """gemm_split_k with one slice is another family."""
    return c.SPLIT_K >= 2


@rule(VALIDITY, families=("gemm_stream_k",))
def programs_for_stream_k(c, p, d):
    """gemm_stream_k shares blocks of K out among the programs of a persistent grid: there must be some."""
    return c.PROGRAMS_PER_SM >= 1


@rule(VALIDITY, families=("gemm_split_k", "gemm_stream_k", "gemv"), backend="hip")
def slices_meet_in_one_launch(c, p, d):
    """On AMD a barrier does not wait for other waves' stores, so slices of one launch may be added up before they land.

    Seen in Triton 3.9's code for gfx942: no s_waitcnt vmcnt(0) before s_barrier. SPLIT_K of gemm_tile is safe: its
    slices are added up by a second kernel.
    """
    return (c.family == "gemv") & (c.SPLIT_K == 1)


@rule(VALIDITY)
def specialised_warps(c, p, d):
    """WARP_SPECIALIZE is for loops over tiles with TMA and warp groups, of 16-bit types, 4 warps, 128 rows or more.

    Not with C_in, which such a loop loads after the products of a tile, 2048 x 2048 x 512 gave NaN (H200, Triton 3.6).
    """
    facts = d.target.facts
    able = (
        (c.family == "gemm_persistent")
        & (facts.tma and facts.by_warp_groups)
        & (p.scaling != "block")
        & (not p.reads_c)
    )
    fits = (c.PROGRAMS_PER_SM >= 1) & (c.num_warps == 4) & (c.BLOCK_SIZE_M >= 128) & (c.BLOCK_SIZE_N % 3 != 0)
    fits &= c.SPLIT_K == 1
    return (c.WARP_SPECIALIZE == 0) | (able & fits & (DTYPES[p.dtype_a].size_bytes == 2))


@rule(VALIDITY)
def operands_fit_memory(c, p, d):
    """A, B, C, the split-K workspace and packed copies of A and B must fit into the GPU's memory."""
    most = c.largest["SPLIT_K"] * (p.m + c.largest["BLOCK_SIZE_M"]) * (p.n + c.largest["BLOCK_SIZE_N"]) * 4 * p.batch
    row_bytes = 128 * 2 * (p.m + p.n + p.k)  # that packed rows are longer, at most
    if most + 2 * p.bytes_moved + row_bytes <= d.memory_bytes:  # as it does for nearly all sizes
        return np.full(c.BLOCK_SIZE_M.shape, True)
    padded = np.ceil(p.m / c.BLOCK_SIZE_M) * c.BLOCK_SIZE_M * np.ceil(p.n / c.BLOCK_SIZE_N) * c.BLOCK_SIZE_N
    padded = np.where(c.family == "gemm_split_k", padded, p.m * p.n)
    adds_up = (c.SPLIT_K > 1) | (c.family.isin(PACKS) & c.family.isin(CUTE))
    workspace_bytes = np.where(adds_up, c.SPLIT_K * padded * 4.0 * p.batch, 0.0)
    packed_bytes = np.where(c.family.isin(PACKS), p.bytes_moved + row_bytes, 0)
    return workspace_bytes + packed_bytes + p.bytes_moved <= d.memory_bytes


@rule(VALIDITY)
def indices_fit_32_bits(c, p, d):
    """The kernel counts rows, columns, blocks of K and tiles in 32-bit integers."""
    limit = 2**31 - 1
    largest_block = max(c.largest["BLOCK_SIZE_M"], c.largest["BLOCK_SIZE_N"])
    if max(p.m * p.n, p.m + largest_block, p.n + largest_block) <= limit and (
        p.k + c.largest["BLOCK_SIZE_K"] * c.largest["SPLIT_K"] <= limit
    ):  # as for nearly all sizes
        return np.full(c.BLOCK_SIZE_M.shape, True)
    tiles = np.ceil(p.m / c.BLOCK_SIZE_M) * np.ceil(p.n / c.BLOCK_SIZE_N)
    # gemv has the larger one of M and N in BLOCK_SIZE_N.
    block_m = np.where(c.family == "gemv", np.maximum(c.BLOCK_SIZE_M, c.BLOCK_SIZE_N), c.BLOCK_SIZE_M)
    rows_and_columns = np.maximum(p.m + block_m, p.n + c.BLOCK_SIZE_N)
    return (rows_and_columns <= limit) & (p.k + c.BLOCK_SIZE_K * c.SPLIT_K <= limit) & (tiles <= limit)


@rule(VALIDITY)
def split_k_fits_grid(c, p, d):
    """SPLIT_K is the grid's second axis, a batch its third: at most 65535 programs (CUDA C Programming Guide)."""
    return (c.SPLIT_K <= 65535) & (p.batch <= 65535)


@rule(VALIDITY)
def block_holds_dot(c, p, d):
    """tl.dot takes no block under 16 x 16 x 16, or under 16 x 16 x 32 of types of one byte."""
    least_k = 32 if DTYPES[p.dtype_a].size_bytes == 1 else 16
    holds = (c.BLOCK_SIZE_M >= 16) & (c.BLOCK_SIZE_N >= 16) & (c.BLOCK_SIZE_K >= least_k)
    return holds | (c.family == "gemv")


@rule(VALIDITY, backend="hip")
def block_holds_mfma(c, p, d):
    """A tile must hold one matrix instruction: BLOCK_SIZE_M and _N not below matrix_instr_nonkdim."""
    holds = (c.BLOCK_SIZE_M >= c.matrix_instr_nonkdim) & (c.BLOCK_SIZE_N >= c.matrix_instr_nonkdim)
    return holds | (c.family == "gemv")


@rule(VALIDITY)
def threads_fit_block(c, p, d):
    """A block has at most 1024 threads."""
    return c.num_warps * d.target.warp_size <= 1024


def by_warp_groups(c, p, d):
    """Whether wgmma or tcgen05 multiplies, which mma.sync does otherwise."""
    has_them = d.target.facts.by_warp_groups and (DTYPES[p.dtype_a].size_bytes <= 2 or p.precision == "tf32")
    return (c.BLOCK_SIZE_M >= 64) & (c.num_warps % 4 == 0) & has_them


@rule(VALIDITY, families=("gemm_tile",), backend="cuda")
def shared_memory_fits(c, p, d):
    """The pipeline's tiles of A and B must fit into shared memory (docs/rules.md, "Shared memory").

    Hopper's and Blackwell's wgmma and tcgen05 (BLOCK_SIZE_M >= 64, whole warp groups, types up to 16 bits and tf32)
    keep num_stages tiles in flight, mma.sync keeps num_stages - 1; tcgen05 adds a barrier of 16 bytes. Tiles of one
    byte that do not lie along K are turned in registers: one tile of them, not one a stage.
    """
    size_a, size_b = DTYPES[p.dtype_a].size_bytes, DTYPES[p.dtype_b].size_bytes
    warpgroup = by_warp_groups(c, p, d)
    buffers = np.where(warpgroup, c.num_stages, np.maximum(1, c.num_stages - 1))
    buffers_a = np.where(warpgroup & (size_a == 1) & (p.layout_a == "col"), 1, buffers)
    buffers_b = np.where(warpgroup & (size_b == 1) & (p.layout_b == "row"), 1, buffers)
    tiles_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a * buffers_a + c.BLOCK_SIZE_N * size_b * buffers_b)
    barrier_bytes = np.where(warpgroup & (d.target.facts.matrix == "tcgen05"), 16, 0)
    return tiles_bytes + barrier_bytes <= d.shared_memory_bytes


@rule(VALIDITY, families=(*BY_DESCRIPTORS, *PACKING), backend="cuda")
def shared_memory_fits_tiles_and_part(c, p, d):
    """The pipeline's tiles and, in a loop over tiles, the part of C that is being stored must fit (docs/rules.md)."""
    size_a, size_b, size_c = (DTYPES[t].size_bytes for t in (p.dtype_a, p.dtype_b, p.dtype_c))
    ring_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + c.BLOCK_SIZE_N * size_b)
    if not d.target.facts.tma:
        return ring_bytes * np.maximum(1, c.num_stages - 1) <= d.shared_memory_bytes
    buffers = np.where(by_warp_groups(c, p, d), c.num_stages, np.maximum(1, c.num_stages - 1))
    looped = c.PROGRAMS_PER_SM > 0
    by_descriptor = c.family.isin(("gemm_persistent", *PACKING))
    slices = (c.SPLIT_K > 1) & by_descriptor
    size_c = np.where(slices, 4, size_c)  # partial sums, which Triton 3.6 gives no room of the tiles
    part_bytes = np.where(looped | slices, c.BLOCK_SIZE_M * c.BLOCK_SIZE_N // c.EPILOGUE_SUBTILE * size_c, 0)
    return ring_bytes * buffers + part_bytes + 8 * buffers <= d.shared_memory_bytes


def copies_straight_to_lds(arch):
    """Whether this Triton loads past the registers on CDNA 4: 3.9 does unless told not to, 3.6 only if told."""
    if arch != "gfx950":
        return False
    from triton import knobs

    return knobs.amd.use_async_copy is not False


@rule(VALIDITY, families=("gemm_tile", *BY_DESCRIPTORS, *PACKING), backend="hip")
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
