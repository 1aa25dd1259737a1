"""What was measured of gemm_cute, gemm_cute_packed and gemm_cute_in_place. ``--no_heuristics`` drops this file.

Each rule says True for the configurations that it keeps. c: columns, p: GemmProblem, d: Device.
"""

import math

import numpy as np

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.descriptors import slice_step, whole_rows
from gemm_tuner.gemm.families import gemm_cute
from gemm_tuner.gemm.families.family import names_of
from gemm_tuner.gemm.model import usable_sms
from gemm_tuner.space.rule import HEURISTIC, rule

CUTE = names_of(lambda family: family.language == "cute")
IN_PLACE = names_of(lambda family: family.in_place)
PACKING = names_of(lambda family: family.packs)
OTHERS = tuple(name for name in CUTE if name not in IN_PLACE)
# Of the other operand: with more, packing is taken to need less time than the slower multiplication. Beside a large
# operand no more than 512 were timed; by the model packing is ahead somewhere between 512 and 1024.
MOST_ROWS_IN_PLACE = 2048
# How many times the work of C the tiles of a launch may do; more is for few rows.
WITHOUT_SLICES, WITH_SLICES = 1.25, 1.36
# Of C: so many rows fit into one tile.
FEW_ROWS = 64
# Hopper's space has all numbers of slices of K up to the first of these, and from there to the last such that 2 to 19
# tiles have one that fills 83 % of 132 SMs or more, each less than 1.3 times the one before.
FEW_SLICES, MOST_SLICES = 6, 66


def sides_of_tile(c, d, swapped=None, columns=None):
    """(rows, columns) of C in a thread block's tile. swapped, columns: in place of SWAP_AB and BLOCK_SIZE_N."""
    swapped = c.SWAP_AB == 1 if swapped is None else swapped
    of_tile = c.BLOCK_SIZE_N if columns is None else columns
    side_m = c.BLOCK_SIZE_M // gemm_cute.sms_of_tile(c, d)
    return np.where(swapped, of_tile, side_m), np.where(swapped, side_m, of_tile)


def clusters_of_cute(c, p, d, swapped=None, columns=None):
    """(clusters along M of C, along N). swapped, columns: of the tiles, in place of SWAP_AB and BLOCK_SIZE_N."""
    rows, columns = sides_of_tile(c, d, swapped, columns)
    swapped = c.SWAP_AB == 1 if swapped is None else swapped
    of_m, of_n = np.where(swapped, (c.CLUSTER_N, c.CLUSTER_M), (c.CLUSTER_M, c.CLUSTER_N))
    return np.ceil(p.m / (rows * of_m)), np.ceil(p.n / (columns * of_n))


def blocks_of_cute(c, p, d, swapped=None, columns=None):
    """Thread blocks of gemm_cute for one slice of K, whole clusters; and how many times the work they do.

    swapped, columns: of the tiles, in place of SWAP_AB and BLOCK_SIZE_N.
    """
    along_m, along_n = clusters_of_cute(c, p, d, swapped, columns)
    rows, columns = sides_of_tile(c, d, swapped, columns)
    blocks = along_m * along_n * c.CLUSTER_M * c.CLUSTER_N
    return blocks, blocks * rows * columns / (p.m * p.n)


def most_work(c, p):
    """How many times the work of C a tile may do."""
    most = np.where(c.SPLIT_K > 1, WITH_SLICES, WITHOUT_SLICES)
    return np.maximum(most, 32.5 / min(p.m, p.n))


def least_k_of_slice(c):
    """The fewest elements along K that slices may have; an operand in place takes longer to read, so that shorter ones
    pay."""
    return np.where(c.family.isin(IN_PLACE), 256, 384)


@rule(HEURISTIC, families=CUTE)
def slices_are_long(c, p, d):
    """Slices have 384 elements along K or more, 256 beside an operand in place (H200).

    Such an operand takes more time to read (64x1801x917: 7.0 us, 7.6 without slices).
    """
    return (c.SPLIT_K == 1) | (p.k >= least_k_of_slice(c) * c.SPLIT_K)


@rule(HEURISTIC, families=CUTE)
def slices_of_turns_are_equal(c, p, d):
    """Unequal slices are for warp groups that share a tile: they were not tried with others."""
    equal = (p.k % (slice_step(p) * c.SPLIT_K) == 0) & (c.PACK_BLOCK == 0)
    return (c.SPLIT_K == 1) | equal | (c.PINGPONG == 0)


@rule(HEURISTIC, families=CUTE)
def slices_for_idle_sms(c, p, d):
    """Slices are for tiles that leave half of the SMs idle, and fill two waves at the most (H200)."""
    tiles, _ = blocks_of_cute(c, p, d)
    return (c.SPLIT_K == 1) | ((2 * tiles <= d.num_sms) & (tiles * c.SPLIT_K <= 2 * d.num_sms))


@rule(HEURISTIC, families=CUTE)
def little_beyond_matrix(c, p, d):
    """Tiles and clusters that compute a quarter more than C, with slices of K a third, are worse (H200, prototypes).

    A tile may take all of few rows, in 16s, as one that reads the other operand once: 37x10742x961 takes 12.0 us in
    128 x 48, and 18.2 in gemm_packed, where these families have none (H200). So may one over 64 rows, in 32s, of the
    families for unaligned rows, whose space has few widths. Beyond the other side it may compute as much as others:
    23x367x1923 takes 5.5 us in 64 x 32, and 10.3 in gemm_tile.
    """
    side = min(p.m, p.n)
    step = 16 if side <= FEW_ROWS else 32
    all_rows = np.where(c.SPLIT_K > 1, WITH_SLICES, WITHOUT_SLICES) * math.ceil(side / step) * step / side
    takes_all = sides_of_tile(c, d)[0 if p.m <= p.n else 1] >= side
    takes_all &= (side <= FEW_ROWS) | c.family.isin(PACKING)
    most = np.maximum(most_work(c, p), np.where(takes_all, all_rows, 0.0))
    return blocks_of_cute(c, p, d)[1] <= most


@rule(HEURISTIC, families=IN_PLACE)
def largest_odd_operand_in_place(c, p, d):
    """What stays in place has rows that TMA does not take, and is the larger one of two such operands.

    The multiplication takes 1.14 times as long (512x50257x768, H200), which is less than packing takes, if the other
    operand has few rows.
    """
    whole_a, whole_b, _ = whole_rows(p)
    takes_b = not whole_b and (whole_a or p.n >= p.m)
    takes_a = not whole_a and not takes_b
    swapped = np.full(c.SWAP_AB.shape, takes_b and p.m <= MOST_ROWS_IN_PLACE)
    return np.where(c.SWAP_AB == 1, swapped, takes_a and p.n <= MOST_ROWS_IN_PLACE)


@rule(HEURISTIC, families=OTHERS)
def one_order_of_operands(c, p, d):
    """With M over 256, or over N, a tile takes operands in one order, faster by up to 7 % (70 bf16 sizes, H200).

    With A along K, tiles of 64, 128, 192 and 256 columns stay, those of warp groups that take turns, and those of less
    than 64 columns with B along K. Others are swapped, which stores longer rows of C. With B along N, columns not in
    32s cost 20 % and more, so that these are always swapped. The other order is kept, too, where it takes 10 % fewer
    blocks or waves, or this one computes too much beyond C. Scales of blocks, Blackwell and A along M: not swapped.
    """
    if p.m <= min(256, p.n):
        return np.full(c.BLOCK_SIZE_M.shape, True)
    if p.layout_a == "col" or p.scaling == "block" or gemm_cute.in_tensor_memory(d):
        return c.SWAP_AB == 0
    (of_plain, work), (of_swapped, swapped_work) = (blocks_of_cute(c, p, d, swapped) for swapped in (False, True))
    plain = (c.BLOCK_SIZE_N % 64 == 0) | (c.PINGPONG == 1) | ((c.BLOCK_SIZE_N < 64) & (p.layout_b == "col"))
    beside = gemm_cute.are_beside_each_other(c)
    never_plain = (c.BLOCK_SIZE_N % 16 != 0) | ((p.layout_b == "row") & (beside | (c.BLOCK_SIZE_N % 32 != 0)))
    plain &= ~never_plain
    fits, swapped_fits = work <= most_work(c, p), swapped_work <= most_work(c, p)
    waves, swapped_waves = (np.ceil(blocks * c.SPLIT_K * p.batch / d.num_sms) for blocks in (of_plain, of_swapped))
    as_well = (of_plain <= 0.9 * of_swapped) | (waves <= 0.9 * swapped_waves) | (fits & ~swapped_fits)
    swapped_as_well = (of_swapped <= 0.9 * of_plain) | (swapped_waves <= 0.9 * waves) | (swapped_fits & ~fits)
    return np.where(c.SWAP_AB == 1, ~plain | swapped_as_well, plain | as_well)


@rule(HEURISTIC, families=CUTE)
def orders_of_clusters(c, p, d):
    """Of groups that give the same order the smallest is kept; for small operands only groups of 1, 2 and 8.

    Of bf16 in gemm_cute groups of one were never ahead by more than 0.3 % where both sides have more than 8 clusters
    (tables of 16 sizes, searches of 50): 2200x13808x2688 takes 223 us one by one, 201 in groups of 16. In groups of two
    1024x1280x5120 takes 19.9 us in 64 x 160, of one or four 25 to 26, 1024x1280x2048 9.7 and 11.8 to 12.4 (H200).
    """
    along_m, along_n = clusters_of_cute(c, p, d)  # the class's C is transposed where operands are swapped
    first, second = np.where(c.SWAP_AB == 1, (along_n, along_m), (along_m, along_n))
    kept = np.full(c.GROUP_SIZE_M.shape, False)
    for family in CUTE:
        of_family = c.family == family
        if not of_family.any():
            continue
        numbers = c.values_of(family, "GROUP_SIZE_M")
        if p.bytes_moved <= d.l2_bytes / 4:
            numbers = [number for number in numbers if number in (1, 2, 8)] or numbers
        own = np.isin(c.GROUP_SIZE_M, numbers)
        by_two = family == "gemm_cute" and 2 in numbers and not gemm_cute.in_tensor_memory(d)
        own &= (c.GROUP_SIZE_M > 1) | (np.minimum(first, second) <= 8) | (not by_two)
        of_first, size = gemm_cute.order_of_clusters(c.GROUP_SIZE_M, first, second)
        for number in numbers:
            other_of_first, other_size = gemm_cute.order_of_clusters(number, first, second)
            own &= (c.GROUP_SIZE_M <= number) | (of_first != other_of_first) | (size != other_size)
        kept |= own & of_family
    return kept


@rule(HEURISTIC, families=CUTE)
def eights_where_they_save(c, p, d):
    """Odd multiples of 8 columns (fp8: under 64) are for 3 % less work of an SM than with 8 columns more or less.

    5000^3 in fp16: 256 x 152 makes 5 whole waves, 1 to 2 % faster than 256 x 160. 34x5120x5120: 14.3 us in 64 x 40,
    15.8 in 64 x 48. 24x5120x3072: 9.3 in 64 x 24, 9.4 in 64 x 32. 2200x13808x2688: 201 in 128 x 200, 208 and more in
    the widths that there were before (H200). Of fp8 none of them was measured.
    """
    sixteens = (c.BLOCK_SIZE_N % 16 == 0) | ((c.BLOCK_SIZE_N > 64) & (DTYPES[p.dtype_a].size_bytes < 2))
    if sixteens.all():
        return sixteens

    def columns_an_sm(columns):
        blocks, _ = blocks_of_cute(c, p, d, columns=columns)
        return np.ceil(blocks * c.SPLIT_K * p.batch / d.num_sms) * columns

    beside = np.minimum(columns_an_sm(np.maximum(8, c.BLOCK_SIZE_N - 8)), columns_an_sm(c.BLOCK_SIZE_N + 8))
    return sixteens | (columns_an_sm(c.BLOCK_SIZE_N) <= 0.97 * beside)


@rule(HEURISTIC, families=CUTE)
def loop_over_tiles_needs_several(c, p, d):
    """A persistent grid with no more tiles than SMs is the plain grid; with many more it wins.

    Turns of warp groups hide the end of a tile behind the next one: with one tile an SM they won 0.4 % at
    1536x1536x8960 (192 x 96, cluster 2x1; H200), and nowhere else.
    """
    if gemm_cute.in_tensor_memory(d):  # its class has no other grid
        return c.PROGRAMS_PER_SM == 1
    tiles = blocks_of_cute(c, p, d)[0] * c.SPLIT_K * p.batch
    return np.where(c.PROGRAMS_PER_SM == 1, tiles > d.num_sms, tiles <= 4 * d.num_sms)


@rule(HEURISTIC, families=CUTE)
def full_waves(c, p, d):
    """A last wave that is half empty costs more than smaller tiles; over 16 waves, tiles of 128 x 160 and less do.

    Scales of blocks leave no registers for wider tiles. Slices have a rule of their own.
    """
    waves = blocks_of_cute(c, p, d)[0] * p.batch / d.num_sms
    least = 0.3 if min(p.m, p.n) <= 32 else 0.4
    no_slices = c.largest["SPLIT_K"] == 1  # in this space
    few = (waves <= 1) & ((waves >= least) | no_slices | (p.k < 1024))
    small = (waves > 16) & (c.BLOCK_SIZE_M * c.BLOCK_SIZE_N < 128 * 160) & (p.scaling != "block")
    return (c.SPLIT_K > 1) | ((few | (waves / np.ceil(waves) >= 0.7)) & ~small)


@rule(HEURISTIC, families=CUTE)
def slices_fill_sms(c, p, d):
    """Slices are to fill three quarters of the SMs, of few rows seven tenths, beside an operand in place three fifths.

    64x1801x917 in three slices of 64 x 64 takes 7.0 us, 7.6 without (H200). So many are no condition where twice as
    many would be too short. Of more than one wave three quarters are to be full.

    Hopper's space has so many numbers beyond six that of these 83 % are to be full, in one wave and in more, unless 1.3
    times as many slices would be too short, or there are no more: 88x2226x28236 takes 49.3 us with 11 slices of 12
    tiles, 51.4 with 12 of 10 (H200).
    """
    waves = blocks_of_cute(c, p, d)[0] * c.SPLIT_K * p.batch / d.num_sms
    finely = (c.SPLIT_K > FEW_SLICES) & (c.largest["SPLIT_K"] >= MOST_SLICES) & (not gemm_cute.in_tensor_memory(d))
    least = np.where(c.family.isin(IN_PLACE), 0.6, 0.7 if min(p.m, p.n) <= FEW_ROWS else 0.75)
    least = np.where(finely, 0.83, np.where(waves > 1, 0.75, least))
    no_more = p.k < np.where(finely, 1.3, 2) * c.SPLIT_K * least_k_of_slice(c)
    no_more |= finely & (c.SPLIT_K == MOST_SLICES)
    return (c.SPLIT_K == 1) | (waves / np.ceil(waves) >= least) | ((waves <= 1) & no_more)


@rule(HEURISTIC, families=CUTE)
def block_of_k_for_tile(c, p, d):
    """128 bytes along K fill the swizzle; 256 pay for tiles up to 128 x 64, 512 for few rows (H200, prototypes)."""
    row_bytes = c.BLOCK_SIZE_K * DTYPES[p.dtype_a].size_bytes
    tile = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N
    few = min(p.m, p.n) <= 64
    return (row_bytes == 128) | ((row_bytes == 256) & (tile <= 128 * 64)) | (few & (row_bytes == 512) & (tile <= 4096))


@rule(HEURISTIC, families=CUTE)
def clusters_where_operands_are_shared(c, p, d):
    """Clusters of four are for launches whose last wave needs none of the SMs that they leave idle, a tenth.

    They read what they share once from L2, which limits many products. With warp groups in turns 472x17272x3240 takes
    76.1 us in place of 87.9, 392x19216x888 24.5 (27.2), 11320x560x9928 179.5 (199.6); of 12 sizes of many waves none
    was faster in fours, whatever its last wave needs (H200). Four and eight are also for small tiles that all run at
    once, as cuBLAS has them (200x3072x12288 fp8: 4x2; 5056x408x488: 1x4): they compute no more than a fifth beyond C,
    and eight have both sides. On Blackwell, where none was timed: up to four.
    """
    size = c.CLUSTER_M * c.CLUSTER_N
    if gemm_cute.in_tensor_memory(d):
        return size <= 4
    tile, at_once = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N, c.PROGRAMS_PER_SM == 0
    blocks, work = blocks_of_cute(c, p, d)
    blocks = blocks * p.batch
    no_more = np.ceil(blocks / usable_sms(c, d)) <= np.ceil(blocks / d.num_sms)
    wide = at_once & (size == 4) & (tile >= 192 * 160)
    small = at_once & (tile <= 128 * 160) & (blocks <= usable_sms(c, d))
    small &= (size == 4) | ((c.CLUSTER_M > 1) & (c.CLUSTER_N > 1))
    in_turns = (c.PINGPONG == 1) & (size == 4) & (tile >= 128 * 128)
    return (size <= 2) | ((c.SPLIT_K == 1) & no_more & (wide | ((small | in_turns) & (work <= 1.2))))
