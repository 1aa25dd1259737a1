"""The rules of the MoE space: predicates of columns, True for configurations to keep. Each docstring is the reason that
users see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemm_tuner.core.records import Device, Problem
from gemm_tuner.moe import cute_rules, model, routing
from gemm_tuner.moe.cute import CUTE
from gemm_tuner.moe.launch import PARTS, extent
from gemm_tuner.moe.launchers import LAUNCHERS, competing, of_columns, of_problem
from gemm_tuner.moe.own import OWN
from gemm_tuner.moe.problem import INTEGERS, SIXTEEN_BIT, MoeProblem
from gemm_tuner.moe.rule_of import rule_of
from gemm_tuner.space.rule import next_power_of_2

LEAST_BLOCK_M = 16
TMA_BYTES = 16
IN_TRITON = tuple(one for one in LAUNCHERS.values() if one is not CUTE)
BIG = 2048  # least extent of both dimensions for a GEMM that counts as large in ROCm's tuner


def of(problem: Problem) -> MoeProblem:
    if not isinstance(problem, MoeProblem):
        raise TypeError(f"{problem.key} is no MoE layer")
    return problem


def of_a_competing_kernel(c: Any, p: Problem, d: Device) -> Any:
    """another kernel, which this problem is not for"""
    families = {one.family for one in competing(of(p))}
    return (c.BLOCK_SIZE_M > 0) & (c.family[0] in families)


def launched_in_triton(c: Any, p: Problem, d: Device) -> Any:
    """the server launches a kernel in CUDA for so few rows, of which a tuned file sets nothing but BLOCK_SIZE_M"""
    launches = of_problem(of(p)).launches_it(of(p), d.target.backend)  # else nothing stands beside ours, either
    return (c.BLOCK_SIZE_M > 0) & launches


def tiles_fit_the_scales(c: Any, p: Problem, d: Device) -> Any:
    """the kernel reads one scale for several blocks of scales, which is wrong"""
    return of_columns(c).can_launch(of(p), c)


def launches_another_kernel(c: Any, p: Problem, d: Device) -> Any:
    """the server's launcher cuts BLOCK_SIZE_K to the block of scales: the same launch as a smaller one"""
    launched = of_columns(c).launched_k(of(p), c.BLOCK_SIZE_K)
    return launched == c.BLOCK_SIZE_K


@rule_of(*IN_TRITON)
def orders_alike(c: Any, p: Problem, d: Device) -> Any:
    """no more blocks along M than a smaller GROUP_SIZE_M takes in one group: the same order of tiles"""
    launcher, problem = of_columns(c), of(p)
    smaller = _next_smaller(c.GROUP_SIZE_M)
    blocks = _per_value(c.BLOCK_SIZE_M, lambda block: -(-launcher.ids_read(problem, block) // block))
    return (c.GROUP_SIZE_M == 1) | (smaller == 1) | (blocks > smaller)


@rule_of(*IN_TRITON)  # the library in CuTe DSL takes as many stages as fit
def shared_memory_fits(c: Any, p: Problem, d: Device) -> Any:
    """the tiles of a stage less than num_stages alone exceed the shared memory"""
    problem = of(p)
    block_k = of_columns(c).launched_k(problem, c.BLOCK_SIZE_K)
    a_bytes = c.BLOCK_SIZE_M * block_k * (1 if problem.dtype == "fp8_w8a8" else 2)
    w_bytes = c.BLOCK_SIZE_N * block_k * problem.weight_bytes
    return (a_bytes + w_bytes) * np.maximum(1, c.num_stages - 1) <= d.shared_memory_bytes


def pads_too_much(c: Any, p: Problem, d: Device) -> Any:
    """BLOCK_SIZE_M is above the rows of the busiest expert, rounded up to a power of two"""
    problem = of(p)
    if of_columns(c) is CUTE:
        return np.maximum(model.LEAST_ROWS, _most_rows(problem)) >= c.BLOCK_SIZE_M * c.CLUSTER_M
    if not of_problem(problem).sorts(problem):
        return c.BLOCK_SIZE_M <= LEAST_BLOCK_M
    return np.maximum(LEAST_BLOCK_M, _most_rows(problem)) >= c.BLOCK_SIZE_M


def wider_than_both(c: Any, p: Problem, d: Device) -> Any:
    """BLOCK_SIZE_N or BLOCK_SIZE_K is above the extent in one of the two GEMMs, rounded up to a power of two"""
    extents = [extent(of(p), part) for part in PARTS]
    columns = next_power_of_2(max(one.columns for one in extents))
    depth = next_power_of_2(max(one.depth for one in extents))
    return (columns >= c.BLOCK_SIZE_N) & (depth >= c.BLOCK_SIZE_K)


def groups_of_one(c: Any, p: Problem, d: Device) -> Any:
    """no expert has two blocks, so GROUP_SIZE_M reuses no weights"""
    return (c.GROUP_SIZE_M == 1) | (_most_rows(of(p)) > c.BLOCK_SIZE_M)


@rule_of(OWN)
def computes_several_tiles(c: Any, p: Problem, d: Device) -> Any:
    """no more tiles in either GEMM than PROGRAMS_PER_SM on every SM: the same as a program for each tile"""
    rows = _per_value(c.BLOCK_SIZE_M, lambda block: -(-OWN.ids_read(of(p), block) // block))
    most = rows * -(-max(extent(of(p), part).columns for part in PARTS) // c.BLOCK_SIZE_N)
    return (c.PROGRAMS_PER_SM == 0) | (most > c.PROGRAMS_PER_SM * d.num_sms)


def tma_can_load(c: Any, p: Problem, d: Device) -> Any:
    """the architecture has no TMA, or a row of weights is no multiple of 16 bytes, which TMA needs"""
    launcher, problem = of_columns(c), of(p)
    if launcher is not OWN and not launcher.has_tma(problem, d.target.backend):
        return c.BLOCK_SIZE_M > 0
    whole = all(extent(problem, part).depth * problem.weight_bytes % TMA_BYTES == 0 for part in PARTS)
    return ((c.W_BY_TMA if launcher is OWN else c.USE_TMA) == 0) | (d.target.facts.tma and whole)


@rule_of(OWN)
def rows_fill_an_instruction(c: Any, p: Problem, d: Device) -> Any:
    """no matrix instruction has fewer than 16 rows; the transposed product has BLOCK_SIZE_M as its columns"""
    return (c.BLOCK_SIZE_M >= LEAST_BLOCK_M) | (c.SWAP_AB == 1)


@rule_of(OWN)
def swaps_for_warp_groups(c: Any, p: Problem, d: Device) -> Any:
    """the transposed product pays where its BLOCK_SIZE_N fills the 64 rows of a warp group's instruction, and
    BLOCK_SIZE_M would not, or weights are integers, which then go from registers into it"""
    pays = (c.BLOCK_SIZE_M < model.LEAST_ROWS) | (of(p).dtype in INTEGERS)
    fills = pays & (c.BLOCK_SIZE_N >= model.LEAST_ROWS)
    return (c.SWAP_AB == 0) | (fills & d.target.facts.by_warp_groups)


def too_small_for_a_large_gemm(c: Any, p: Problem, d: Device) -> Any:
    """ROCm's tuner: at 2048 tokens and more, no tile below 64 (or the busiest expert's rows) x 64 x 64, nor 4 warps"""
    large = of(p).M >= BIG and max(extent(of(p), part).columns for part in PARTS) >= BIG
    if d.target.backend != "hip" or not large:
        return c.BLOCK_SIZE_M > 0
    rows = min(64, max(LEAST_BLOCK_M, _most_rows(of(p))))
    return (rows <= c.BLOCK_SIZE_M) & (c.BLOCK_SIZE_N >= 64) & (c.BLOCK_SIZE_K >= 64) & (c.num_warps >= 4)


def instruction_fits(c: Any, p: Problem, d: Device) -> Any:
    """ROCm's tuner: a matrix instruction no larger than the tile, and of 16 where M or N is below 32"""
    if d.target.backend != "hip" or of(p).dtype not in SIXTEEN_BIT:
        return c.BLOCK_SIZE_M > 0
    kdim = c.matrix_instr_nonkdim.astype(np.int64)
    few = of(p).M < 32 or min(extent(of(p), part).columns for part in PARTS) < 32
    return (kdim <= c.BLOCK_SIZE_M) & (kdim <= c.BLOCK_SIZE_N) & ((kdim <= 16) | (not few))


def _most_rows(problem: MoeProblem) -> int:
    """Largest number of rows of an expert in any measured draw, rounded up to a power of two."""
    return next_power_of_2(max(int(routing.counts(ids, problem.E).max()) for ids in model.draws(problem)))


def _per_value(column: Any, count: Callable[[int], int]) -> Any:
    """``count`` of each value of a column."""
    values, places = np.unique(column, return_inverse=True)
    return np.array([count(int(value)) for value in values])[places]


def _next_smaller(groups: Any) -> Any:
    """For each value of the axis, the next smaller value; 1 for the smallest."""
    values = np.unique(groups)
    return np.concatenate([[1], values])[np.searchsorted(values, groups)]


VALID = (
    of_a_competing_kernel,
    launched_in_triton,
    tiles_fit_the_scales,
    launches_another_kernel,
    orders_alike,
    shared_memory_fits,
    computes_several_tiles,
    tma_can_load,
    rows_fill_an_instruction,
    cute_rules.orders_alike_along_n,
    cute_rules.tile_of_the_class,
    cute_rules.sums_fit_the_registers,
    cute_rules.epilogue_has_the_activation,
    cute_rules.tile_of_a_fused_activation,
    cute_rules.rows_of_whole_16_bytes,
)
LIKELY = (
    pads_too_much,
    wider_than_both,
    groups_of_one,
    swaps_for_warp_groups,
    too_small_for_a_large_gemm,
    instruction_fits,
)
