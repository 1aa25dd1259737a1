"""What experience and measurements say is never the best. ``--no_heuristics`` drops this file.

Each rule says True for the configurations that it keeps. c: columns, p: GemmProblem, d: Device.
"H200 sweep" is the record of 11 282 timings of two prototype kernels over nine bf16 sizes on an H200.
"""

import numpy as np

from gemm_tuner.gemm.families.family import names_of
from gemm_tuner.space.rule import HEURISTIC, next_power_of_2, rule

LARGE = 2048
MOST_SLICES = 32
TILED = names_of(lambda family: family.is_tiled)
WITHOUT_CLUSTERS = names_of(lambda family: family.language != "cute")


@rule(HEURISTIC, families=TILED)
def tile_not_beyond_matrix(c, p, d):
    """A tile larger than the matrix, rounded up to a power of two, computes what nobody reads."""
    m, n, k = (max(16, next_power_of_2(extent)) for extent in (p.m, p.n, p.k))
    return (c.BLOCK_SIZE_M <= m) & (c.BLOCK_SIZE_N <= n) & (c.BLOCK_SIZE_K <= max(32, k))


@rule(HEURISTIC, backend="cuda")
def accumulator_fits_registers(c, p, d):
    """256 accumulator registers a thread always spill on NVIDIA (H200 sweep: 23 of 23)."""
    chosen_by_library = c.num_warps == 0
    if chosen_by_library.all():
        return chosen_by_library
    return (c.BLOCK_SIZE_M * c.BLOCK_SIZE_N < 256 * 32 * c.num_warps) | chosen_by_library


@rule(HEURISTIC, backend="hip")
def accumulator_fits_accumulation_registers(c, p, d):
    """More accumulators a thread than half of its vector registers leave none for the operands."""
    return c.BLOCK_SIZE_M * c.BLOCK_SIZE_N <= d.max_registers // 2 * d.target.warp_size * c.num_warps


@rule(HEURISTIC, families=TILED)
def warps_have_work(c, p, d):
    """Fewer than 4 elements of C a thread leave warps without a matrix instruction of their own."""
    return (c.BLOCK_SIZE_M * c.BLOCK_SIZE_N >= 4 * d.target.warp_size * c.num_warps) | (c.num_warps == 1)


@rule(HEURISTIC, families=TILED)
def one_warp_for_small_tiles(c, p, d):
    """A single warp holds the accumulators of a tile of 32 x 32 and hides no latency with more."""
    return (c.num_warps > 1) | (c.BLOCK_SIZE_M * c.BLOCK_SIZE_N <= 32 * 32)


@rule(HEURISTIC, families=TILED)
def split_k_for_few_tiles(c, p, d):
    """SPLIT_K pays only while the tiles do not fill the GPU: it is 1 when M and N are large."""
    tiles = np.ceil(p.m / c.BLOCK_SIZE_M) * np.ceil(p.n / c.BLOCK_SIZE_N)
    return (c.SPLIT_K == 1) | ((tiles < d.num_sms) & (tiles * c.SPLIT_K <= 4 * d.num_sms))


@rule(HEURISTIC, families=TILED)
def split_k_slices_are_long(c, p, d):
    """A slice of K shorter than four blocks, or than 256, does not pay for writing partial sums."""
    return (c.SPLIT_K == 1) | (p.k >= c.SPLIT_K * np.maximum(256, 4 * c.BLOCK_SIZE_K))


@rule(HEURISTIC, families=("gemm_tile",))
def few_tiles_split_k(c, p, d):
    """Tiles that keep less than an eighth of the GPU busy lose to the same tiles with a longer SPLIT_K."""
    tiles = np.ceil(p.m / c.BLOCK_SIZE_M) * np.ceil(p.n / c.BLOCK_SIZE_N)
    slices_stay_long = p.k >= 2 * c.SPLIT_K * np.maximum(256, 4 * c.BLOCK_SIZE_K)
    can_split_more = slices_stay_long & (2 * c.SPLIT_K <= MOST_SLICES)
    return (8 * tiles * c.SPLIT_K >= d.num_sms) | ~can_split_more


@rule(HEURISTIC, families=WITHOUT_CLUSTERS)
def group_within_matrix(c, p, d):
    """Groups beyond the one that first covers all rows of tiles give the same order again.

    That one is kept although it is not below M: it walks down the columns, which GROUP_SIZE_M 1 does
    not, and short, wide problems win by it (H200 sweep, 256 x 7168 x 2048).
    """
    return (c.GROUP_SIZE_M == 1) | (c.GROUP_SIZE_M * c.BLOCK_SIZE_M < 2 * p.m)


@rule(HEURISTIC, families=WITHOUT_CLUSTERS)
def group_when_operands_exceed_l2(c, p, d):
    """Tile order matters little while the operands fit into a quarter of L2; one grouped order is kept."""
    return (c.GROUP_SIZE_M == 1) | (c.GROUP_SIZE_M == 8) | (p.bytes_moved > d.l2_bytes / 4)


@rule(HEURISTIC, families=TILED)
def stages_have_blocks(c, p, d):
    """More pipeline stages than blocks along K prefetch nothing, unless a loop over tiles goes on to the next."""
    blocks = np.ceil(p.k / (c.BLOCK_SIZE_K * c.SPLIT_K))
    return (c.num_stages <= np.maximum(blocks, 2)) | (c.num_stages == 1) | (c.PROGRAMS_PER_SM > 0)


@rule(HEURISTIC, families=TILED)
def large_matrix_large_tile(c, p, d):
    """With M and N large, small tiles read A and B too often (H200 sweep: no winner under 64 x 128)."""
    if min(p.m, p.n) >= LARGE:
        return (c.BLOCK_SIZE_M >= 64) & (c.BLOCK_SIZE_N >= 64) & (c.BLOCK_SIZE_K >= 32) & (c.num_warps >= 4)
    if min(p.m, p.n) >= LARGE // 2:
        return (c.BLOCK_SIZE_M >= 32) & (c.BLOCK_SIZE_N >= 32) & (c.BLOCK_SIZE_M * c.BLOCK_SIZE_N >= 64 * 64)
    return c.BLOCK_SIZE_M > 0


@rule(HEURISTIC, families=TILED)
def long_k_long_block(c, p, d):
    """With K of 512 and more, blocks of 16 along K are all loop overhead."""
    return (c.BLOCK_SIZE_K >= 32) | (p.k < 512)


@rule(HEURISTIC, families=TILED)
def tall_tile_for_tall_matrix(c, p, d):
    """With M over 128, tiles of 16 rows read B eight times as often as tiles of 128."""
    return (c.BLOCK_SIZE_M >= 32) | (p.m <= 128)


@rule(HEURISTIC, families=TILED)
def wide_tile_for_wide_matrix(c, p, d):
    """With N over 1024, tiles of 16 columns read A too often, however few the rows are."""
    return (c.BLOCK_SIZE_N >= 32) | (p.n <= 1024)
