"""Limits of quack's GEMM classes in CuTe DSL, for gemm_cute, gemm_cute_packed and gemm_cute_in_place.

These rules are never skipped. Each says True for the configurations that it keeps. c: columns, p: GemmProblem, d:
Device.
"""

import numpy as np

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.descriptors import slice_step
from gemm_tuner.gemm.families import gemm_cute
from gemm_tuner.gemm.families.family import names_of
from gemm_tuner.gemm.problem import SCALE_BLOCK
from gemm_tuner.space.rule import VALIDITY, rule

CUTE = names_of(lambda family: family.language == "cute")
IN_PLACE = names_of(lambda family: family.in_place)


@rule(VALIDITY, families=CUTE)
def architectures_of_class(c, p, d):
    """quack has classes for Hopper (sm_90) and Blackwell (sm_100, sm_103); its class for sm_120 was not tried."""
    return np.full(c.BLOCK_SIZE_M.shape, d.target.arch in gemm_cute.ARCHITECTURES)


@rule(VALIDITY, families=CUTE)
def types_of_class(c, p, d):
    """The class multiplies bf16, fp16 and fp8, on Blackwell no mixed ones, and stores bf16, fp16 or fp32."""
    takes = p.dtype_a in ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2") and p.dtype_c in ("bf16", "fp16", "fp32")
    takes = takes and (p.dtype_a == p.dtype_b or not gemm_cute.in_tensor_memory(d))
    return np.full(c.BLOCK_SIZE_M.shape, takes)


@rule(VALIDITY, families=CUTE)
def fp8_along_k(c, p, d):
    """wgmma reads fp8 along K only: A row-major and B column-major."""
    along_k = (p.layout_a, p.layout_b) == ("row", "col")
    any_layout = gemm_cute.in_tensor_memory(d) or not DTYPES[p.dtype_a].is_fp8
    return np.full(c.BLOCK_SIZE_M.shape, along_k or any_layout)


@rule(VALIDITY, families=CUTE)
def scales_of_blocks(c, p, d):
    """With scales of blocks: gemm_cute on Hopper, 128 elements along K, columns in 16s, no pingpong.

    Scales are applied to the products of one block of K, by warp groups one above the other in a tile: not 320 rows,
    nor 192 with more than 128 columns. With swapped operands a thread holds the scales of columns, up to 80, of three
    warp groups up to 32; else registers are spilled.
    """
    able = not gemm_cute.in_tensor_memory(d) and p.scaling == "block"
    above = (c.PINGPONG == 0) & (c.BLOCK_SIZE_M != 320) & ((c.BLOCK_SIZE_M != 192) | (c.BLOCK_SIZE_N <= 128))
    whole = (c.BLOCK_SIZE_K == SCALE_BLOCK) & (c.BLOCK_SIZE_N % 16 == 0)
    few = (c.SWAP_AB == 0) | (c.BLOCK_SIZE_N <= np.where(gemm_cute.warp_groups(c) == 3, 32, 80))
    return (able & above & whole & few & (c.PACK_BLOCK == 0)) | np.full(c.BLOCK_SIZE_M.shape, p.scaling != "block")


@rule(VALIDITY, families=CUTE)
def tile_of_class(c, p, d):
    """The class takes 64 to 320 rows in 64s, columns in 16s up to 256, for 192 and 320 rows in 32s.

    320 rows take up to 160 columns. Pingpong takes up to 256, 208 and 128 columns of 64, 128 and 192 rows. Ours takes
    ``columns_in_eights`` too. On Blackwell: 64 or 128 rows, 256 by two SMs; columns in 32s; no turns.
    """
    m, n = c.BLOCK_SIZE_M, c.BLOCK_SIZE_N
    if gemm_cute.in_tensor_memory(d):
        rows = np.isin(m, (64, 128)) | ((m == 256) & (gemm_cute.sms_of_tile(c, d) == 2))
        return rows & (n % 32 == 0) & (n <= 256) & (c.PINGPONG == 0)
    together = (m % 64 == 0) & (m <= 320) & (n % 8 == 0) & (n <= np.where(m == 320, 160, 256))
    together &= (n % 32 == 0) | ((m != 192) & (m != 320))
    in_turn = np.isin(m, (64, 128, 192)) & (n % 8 == 0)
    in_turn &= n <= np.where(m == 64, 256, np.where(m == 128, 208, 128))
    return np.where(c.PINGPONG == 1, in_turn, together)


@rule(VALIDITY, families=CUTE)
def columns_in_eights(c, p, d):
    """Odd multiples of 8 columns are for swapped operands of which the second is along K, without C_in.

    Of others C's rows would be stored in pieces of 16 bytes, or the second operand read in rows of 16 bytes.
    """
    able = not p.reads_c and p.layout_a == "row"
    return (c.BLOCK_SIZE_N % 16 == 0) | ((c.SWAP_AB == 1) & able)


@rule(VALIDITY, families=CUTE)
def warp_groups_beside_each_other(c, p, d):
    """320 rows, or 192 with over 128 columns, abort the compiler where the second operand is not along K."""
    beside = gemm_cute.are_beside_each_other(c)
    beside &= not gemm_cute.in_tensor_memory(d)
    along_k = np.where(c.SWAP_AB == 1, p.layout_a == "row", p.layout_b == "col")
    return ~beside | along_k


@rule(VALIDITY, families=CUTE)
def cluster_of_class(c, p, d):
    """A cluster has 1, 2, 4 or 8 blocks, a power of two along each side, on Blackwell up to 4 (none larger was tried).

    Eight are the most that every GPU places (CUDA C Programming Guide).
    """
    m, n = c.CLUSTER_M, c.CLUSTER_N
    along = np.isin(m, (1, 2, 4, 8)) & np.isin(n, (1, 2, 4, 8))
    return along & (m * n <= (4 if gemm_cute.in_tensor_memory(d) else 8))


@rule(VALIDITY, families=CUTE)
def pingpong_is_persistent(c, p, d):
    """Warp groups take turns over the tiles of a persistent grid, which has one program an SM.

    Blackwell's class has no other grid, and gets its next tile from the hardware.
    """
    if gemm_cute.in_tensor_memory(d):
        return c.PROGRAMS_PER_SM == 1
    return (c.PROGRAMS_PER_SM <= 1) & ((c.PINGPONG == 0) | (c.PROGRAMS_PER_SM == 1))


@rule(VALIDITY, families=CUTE)
def block_of_k_of_class(c, p, d):
    """A block of K is a multiple of what one wgmma takes, 16 elements of 16 bits or 32 of fp8."""
    return c.BLOCK_SIZE_K % (32 if DTYPES[p.dtype_a].is_fp8 else 16) == 0


@rule(VALIDITY, families=CUTE)
def sums_fit_registers(c, p, d):
    """A thread holds up to 216 sums of two warp groups, 128 of three. Not on Blackwell.

    With scales of blocks also the products of a block, and so 208 in all.
    """
    if gemm_cute.in_tensor_memory(d):
        return c.BLOCK_SIZE_M > 0
    of_block, most = (c.BLOCK_SIZE_N // 2, 208) if p.scaling == "block" else (0, 216)
    return gemm_cute.accumulators(c) + of_block <= np.where(gemm_cute.warp_groups(c) == 3, 128, most)


@rule(VALIDITY, families=IN_PLACE)
def operand_in_place(c, p, d):
    """On Hopper, of 16 bits: 64 or more along K, columns in 16s, no cluster along N, and what registers hold.

    A cluster along N would share the operand that four warps copy. A thread that multiplies has elements of the operand
    beside its sums, of the rows of its warp group; one that copies keeps its addresses.
    """
    able = not gemm_cute.in_tensor_memory(d) and DTYPES[p.dtype_a].size_bytes == 2
    rows_of_group = c.BLOCK_SIZE_M // gemm_cute.groups_above_each_other(c)
    registers = gemm_cute.accumulators(c) + rows_of_group * c.BLOCK_SIZE_K // 256
    fits = (c.BLOCK_SIZE_K >= 64) & (c.BLOCK_SIZE_N % 16 == 0) & ((c.BLOCK_SIZE_K == 64) | (c.BLOCK_SIZE_M == 64))
    fits &= registers <= np.where(gemm_cute.warp_groups(c) == 3, 112, 168)
    return fits & (c.CLUSTER_N == 1) & able


@rule(VALIDITY, families=CUTE)
def slices_of_k_of_class(c, p, d):
    """Equal slices of K are views of A and B, where those are not packed; of others each has a block of K or more.

    No batch beside them.
    """
    equal = (c.PACK_BLOCK == 0) & (p.k % (c.SPLIT_K * slice_step(p)) == 0)
    return (c.SPLIT_K == 1) | ((equal | (p.k >= c.SPLIT_K * c.BLOCK_SIZE_K)) & (p.batch == 1))


@rule(VALIDITY, families=CUTE)
def stages_of_class(c, p, d):
    """Two blocks of K or more, and the part of C that is stored, must fit into shared memory."""
    return gemm_cute.stages(c, p, d) >= 2
