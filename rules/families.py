"""What was measured of single kernel families and architectures. ``--no_heuristics`` drops this file.

Each rule says True for the configurations that it keeps. c: columns, p: GemmProblem, d: Device.
"H200 sweep 2": 21 900 timings of all families over 19 bf16 sizes in NN and NT, November 2026, Triton 3.6; not kept. The
winners of the run after it are in results/tuned/nvidia_h200_bf16.yaml, and a test asks that the rules keep them.
"""

import numpy as np

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.descriptors import rows_fit_descriptors, whole_rows
from gemm_tuner.gemm.families.family import names_of
from gemm_tuner.space.rule import HEURISTIC, next_power_of_2, rule

MOST_SLICES_OF_GEMV = 16
SWIZZLE_BYTES = 128  # of the widest row of a TMA box; narrower boxes leave banks of shared memory idle

BY_DESCRIPTORS = names_of(lambda family: family.by_descriptors and family.language == "triton")
PACKING = names_of(lambda family: family.packs and family.language == "triton")
PACKS = names_of(lambda family: family.packs)


def tiles_of(c, p):
    rows = np.ceil(np.ceil(p.m / c.ROW_STEP) / c.BLOCK_SIZE_M) * c.ROW_STEP
    return rows * np.ceil(p.n / c.BLOCK_SIZE_N)


def ring_bytes(c, p):
    size_a, size_b = DTYPES[p.dtype_a].size_bytes, DTYPES[p.dtype_b].size_bytes
    return c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + c.BLOCK_SIZE_N * size_b)


@rule(HEURISTIC, families=("gemm_tile",), backend="cuda")
def pointers_for_few_rows_or_odd_ones(c, p, d):
    """Where descriptors can be used, pointer loads win only with 128 rows or columns of C or fewer (H200 sweep 2)."""
    facts = d.target.facts
    descriptors = facts.tma and facts.by_warp_groups and rows_fit_descriptors(p) and p.batch == 1
    descriptors = descriptors and "gemm_persistent" in c.families
    half_types = DTYPES[p.dtype_a].size_bytes <= 2
    return np.full(c.BLOCK_SIZE_M.shape, not (descriptors and half_types and min(p.m, p.n) > 128))


@rule(HEURISTIC, families=PACKS, whole_families=True)
def something_to_pack(c, p, d):
    """Packing is for rows that do not start at multiples of 16 bytes: where all do, nothing is packed."""
    return not rows_fit_descriptors(p)


@rule(HEURISTIC, families=PACKING)
def rows_apart_for_odd_rows_of_c(c, p, d):
    """ROW_STEP is for rows of C that descriptors do not take otherwise, and the least that makes them whole."""
    row_bytes = p.n * DTYPES[p.dtype_c].size_bytes
    return (c.ROW_STEP == 1) | (row_bytes * (c.ROW_STEP // 2) % 16 != 0)


@rule(HEURISTIC, families=PACKING)
def few_rows_beyond_c(c, p, d):
    """Tiles of every ROW_STEP-th row that have half as many rows again as tiles of neighbours compute too much."""
    return tiles_of(c, p) * 2 <= 3 * np.ceil(p.m / c.BLOCK_SIZE_M) * np.ceil(p.n / c.BLOCK_SIZE_N)


@rule(HEURISTIC, families=("gemm_tile",), backend="cuda")
def pointers_where_packing_costs_more(c, p, d):
    """With TMA, from 2**27 products up, packed rows are twice to 5 times as fast (H200), but for 128 rows or fewer.

    Nor where K is 128 or less, of which gemm_packed has no short blocks; nor where only rows of C are odd: pointers won
    at 512x50257x768 with B column-major (H200, bf16 and fp8).
    """
    packs = d.target.facts.tma and "gemm_packed" in c.families and p.batch == 1 and not all(whole_rows(p)[:2])
    return np.full(c.BLOCK_SIZE_M.shape, not (packs and min(p.m, p.n, p.k) > 128 and p.m * p.n * p.k >= 2**27))


@rule(HEURISTIC, families=("gemm_tile",), backend="cuda")
def pointers_for_few_rows_are_deep(c, p, d):
    """With 128 rows or fewer time is memory time: less than 32 KiB in flight a program is too little (H200 sweep 2)."""
    few = min(p.m, p.n) <= 128 and p.m * p.n * p.k >= 2**24
    deep = ring_bytes(c, p) * (c.num_stages - 1) >= 32768
    return deep | np.full(c.BLOCK_SIZE_M.shape, not few) | (c.num_stages * c.BLOCK_SIZE_K * c.SPLIT_K >= p.k)


@rule(HEURISTIC, families=("gemm_tile", "gemm_split_k"))
def half_of_few_rows(c, p, d):
    """With 128 rows or fewer, tiles of less than half of them read B again and again (H200 sweep 2)."""
    return (2 * c.BLOCK_SIZE_M >= min(next_power_of_2(p.m), 128)) | np.full(c.BLOCK_SIZE_M.shape, p.m > 128)


@rule(HEURISTIC, families=(*BY_DESCRIPTORS, *PACKING), backend="cuda")
def a_warp_group_for_each_128_rows_and_columns(c, p, d):
    """4 warps hold the accumulators of 128 x 128; more tile needs 8, less has no work for them (H200 sweep 2).

    With block scales each block's products are held beside the sums: 128 x 128 may take 8 warps there too.
    """
    tile = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N
    either = (p.scaling == "block") & (tile == 128 * 128)
    return (c.num_warps == np.where(tile > 128 * 128, 8, 4)) | either | (c.WARP_SPECIALIZE == 1)


@rule(HEURISTIC, families=(*BY_DESCRIPTORS, *PACKING), backend="cuda")
def boxes_as_wide_as_the_swizzle(c, p, d):
    """Rows of a block of K of 128 to 512 bytes fill the TMA swizzle; narrower ones never won (H200 sweep 2)."""
    row_bytes = c.BLOCK_SIZE_K * DTYPES[p.dtype_a].size_bytes
    fill = ((row_bytes >= SWIZZLE_BYTES) | (c.BLOCK_SIZE_K >= p.k)) & (row_bytes <= 4 * SWIZZLE_BYTES)
    return fill | (not d.target.facts.tma)


@rule(HEURISTIC, families=(*BY_DESCRIPTORS, *PACKING), backend="cuda")
def loads_in_flight(c, p, d):
    """Less than 64 KiB a program in flight leave the memory idle, unless K is shorter (H200 sweep 2)."""
    blocks = np.ceil(p.k / (c.BLOCK_SIZE_K * c.SPLIT_K))
    deep = ring_bytes(c, p) * c.num_stages >= 65536 // np.maximum(1, c.PROGRAMS_PER_SM)
    return deep | (c.num_stages >= np.minimum(blocks, c.largest["num_stages"]))


@rule(HEURISTIC, families=("gemm_persistent", *PACKING))
def persistent_needs_several_tiles(c, p, d):
    """A persistent grid with no more tiles than programs is the plain grid with a loop around it."""
    return (c.PROGRAMS_PER_SM == 0) | (tiles_of(c, p) * c.SPLIT_K > d.num_sms * c.PROGRAMS_PER_SM)


@rule(HEURISTIC, families=("gemm_persistent", *PACKING))
def slices_fill_waves(c, p, d):
    """Slices that a second kernel adds up are as many as fill one wave or two to three quarters."""
    programs = tiles_of(c, p) * c.SPLIT_K
    waves = programs / d.num_sms
    return (c.SPLIT_K == 1) | ((waves <= 2) & (waves >= 0.75 * np.ceil(waves)))


@rule(HEURISTIC, families=("gemm_persistent", "gemm_stream_k", *PACKING), backend="cuda")
def programs_fit_sm(c, p, d):
    """More programs than one SM holds wait for each other."""
    part_bytes = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N // c.EPILOGUE_SUBTILE * DTYPES[p.dtype_c].size_bytes
    needed = (ring_bytes(c, p) * c.num_stages + part_bytes) * c.PROGRAMS_PER_SM
    return (c.PROGRAMS_PER_SM <= 1) | (needed <= d.shared_memory_per_sm_bytes)


@rule(HEURISTIC, families=("gemm_persistent", *PACKING), backend="cuda")
def parts_of_wide_tiles(c, p, d):
    """Storing in parts frees shared memory for a stage: for 256 columns, and 2 parts of 128 in a loop over tiles."""
    return (c.EPILOGUE_SUBTILE == 3) | np.where(
        c.BLOCK_SIZE_N >= 256,
        c.EPILOGUE_SUBTILE >= 2,
        (c.EPILOGUE_SUBTILE == 1) | ((c.BLOCK_SIZE_N == 128) & (c.EPILOGUE_SUBTILE == 2) & (c.PROGRAMS_PER_SM > 0)),
    )


@rule(HEURISTIC, backend="cuda")
def warp_specialisation_on_blackwell(c, p, d):
    """On Hopper it was 3 % slower at best and 10 % in the mean (H200, Triton 3.6, 24 sizes and layouts, sweep 2)."""
    return (c.WARP_SPECIALIZE == 0) | (d.target.facts.matrix != "wgmma")


@rule(HEURISTIC, families=("gemm_split_k",))
def one_part_for_slices(c, p, d):
    """The tiles of split K are small: the sum of slices is stored at once."""
    return (c.EPILOGUE_SUBTILE == 1) | (c.BLOCK_SIZE_M * c.BLOCK_SIZE_N >= 128 * 128)


@rule(HEURISTIC, families=("gemm_split_k",))
def enough_slices_for_the_gpu(c, p, d):
    """Slices that leave more than half of the GPU idle are too few while K has more; over four waves are too many."""
    programs = tiles_of(c, p) * c.SPLIT_K
    last = c.SPLIT_K == max(c.values_of("gemm_split_k", "SPLIT_K"), default=0)
    no_more = last | (p.k < 2 * c.SPLIT_K * np.maximum(256, 4 * c.BLOCK_SIZE_K))
    return ((2 * programs >= d.num_sms) | no_more) & (programs <= 4 * d.num_sms)


@rule(HEURISTIC, families=("gemm_stream_k",))
def last_wave_is_mostly_empty(c, p, d):
    """Sharing out the last wave pays when it fills less than 7/8 of the GPU and few full waves come before it."""
    programs = d.num_sms * c.PROGRAMS_PER_SM
    left = tiles_of(c, p) % np.maximum(1, programs)
    return (left > 0) & (8 * left <= 7 * programs) & (tiles_of(c, p) < 12 * programs) & (tiles_of(c, p) * 4 > programs)


@rule(HEURISTIC, families=("gemm_stream_k",))
def large_tiles_for_stream_k(c, p, d):
    """Partial sums cost as much as the tile's edge is short: tiles of 128 x 128 and more, stored in parts."""
    return (c.BLOCK_SIZE_M * c.BLOCK_SIZE_N >= 128 * 128) & (c.EPILOGUE_SUBTILE >= 2)


@rule(HEURISTIC, families=("gemv",))
def rows_of_gemv(c, p, d):
    """No more rows than there are; beyond 4 the matrix units win (H200 sweep 2: 0.61 to 0.83 of cuBLAS at 4 rows)."""
    rows = min(p.m, p.n)
    return (c.BLOCK_SIZE_M == next_power_of_2(rows)) & (rows <= 4)


@rule(HEURISTIC, families=("gemv",))
def gemv_tile_for_threads(c, p, d):
    """8 to 32 elements a thread: fewer leave loads narrow, more leave few threads; sums stay in 64 registers."""
    elements = c.BLOCK_SIZE_N * c.BLOCK_SIZE_K / (d.target.warp_size * np.maximum(1, c.num_warps))
    return (elements >= 8) & (elements <= 32) & (elements * c.BLOCK_SIZE_M <= 64)


@rule(HEURISTIC, families=("gemv",))
def gemv_tile_along_memory(c, p, d):
    """A row of the tile is long in memory: 256 bytes or more where the matrix lies along K, else 64."""
    size = DTYPES[p.dtype_b if p.m <= p.n else p.dtype_a].size_bytes
    along_k = p.layout_b == "col" if p.m <= p.n else p.layout_a == "row"
    return (c.BLOCK_SIZE_K if along_k else c.BLOCK_SIZE_N) * size >= np.where(along_k, 256, 64)


@rule(HEURISTIC, families=("gemv",))
def gemv_fills_gpu(c, p, d):
    """Enough programs for every SM, and no slice of K without a block.

    At 1x733x994 eight slices of one block, which is loaded at once, take 3.6 us, of two blocks and more 5.0 (H200).
    """
    programs = np.ceil(max(p.m, p.n) / c.BLOCK_SIZE_N) * c.SPLIT_K
    enough = (programs >= d.num_sms) | (c.BLOCK_SIZE_N == 1) | (c.SPLIT_K >= MOST_SLICES_OF_GEMV)
    return enough & ((c.SPLIT_K - 1) * c.BLOCK_SIZE_K < p.k) & (c.BLOCK_SIZE_K < 2 * p.k)


@rule(HEURISTIC, families=("gemm_tile", "gemm_persistent", "gemm_stream_k", *PACKING), backend="hip")
def chiplets_for_many_tiles(c, p, d):
    """Tiles in the chiplets' order share L2 when there is one a compute unit; with fewer the order changes nothing."""
    many = tiles_of(c, p) >= d.num_sms
    return np.where(many & (c.largest["NUM_XCDS"] > 1), c.NUM_XCDS > 1, c.NUM_XCDS == 1)


@rule(HEURISTIC, backend="hip")
def weights_stream_past_few_rows(c, p, d):
    """Loading B past the nearest cache pays where B is read once: with 64 rows or fewer."""
    return (c.STREAM_B == 0) | np.full(c.BLOCK_SIZE_M.shape, p.m <= 64)


@rule(HEURISTIC, backend="hip")
def small_mfma(c, p, d):
    """MFMA of 16 x 16 beats 32 x 32 for GEMM (AMD, "Optimizing Triton kernels", matrix_instr_nonkdim)."""
    return c.matrix_instr_nonkdim != 32


@rule(HEURISTIC, families=("gemm_persistent", "gemm_stream_k", *PACKING), backend="hip")
def parts_of_wide_tiles_on_amd(c, p, d):
    """Storing in parts pays for 256 columns only."""
    return (c.EPILOGUE_SUBTILE == 1) | (c.BLOCK_SIZE_N >= 256)


@rule(HEURISTIC, families=("gemm_persistent", "gemm_stream_k", *PACKING), backend="hip")
def warps_for_tile_on_amd(c, p, d):
    """32 to 128 accumulators a thread: less has no work for the warps, more leaves no registers for operands."""
    accumulators = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (d.target.warp_size * np.maximum(1, c.num_warps))
    return (accumulators >= 32) & (accumulators <= 128)
