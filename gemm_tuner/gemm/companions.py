"""Companion problems: other sizes at which a configuration is checked in addition to the tuned one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemm_tuner.gemm.descriptors import chunk_elements, has_equal_slices, slice_step, whole_rows
from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.gemm.problem import GemmProblem, Layout

# TMA descriptors need rows of a multiple of 16 bytes; this many elements are one for every type.
WHOLE_ROWS = 16
# Number of matrices in the batch of a companion.
COMPANION_BATCH = 2


def check_problems(
    problem: GemmProblem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
) -> tuple[GemmProblem, ...]:
    """The sizes at which a configuration is checked; see ``core.workload.Workload.check_problems``."""
    return small_companion(problem, config) if interpreted else problem, odd_companion(problem, config, descriptors)


def odd_companion(problem: GemmProblem, config: dict[str, Any], descriptors: bool) -> GemmProblem:
    """A small problem that leaves partial tiles on every side: M and N just over one tile, and a K that neither
    BLOCK_SIZE_K nor SPLIT_K divides.

    descriptors: the kernel loads through TMA descriptors; row lengths are then multiples of 16 elements.
    For a family that keeps the smaller of M and N in one tile, that side keeps its size. For one that packs and is not
    Triton's, the same is packed or nothing, and rows of C are as the problem's. Where one operand is not packed, each
    side is as far from a multiple of WHOLE_ROWS as the problem's.
    """
    family = family_of(config["family"])
    of_kernel = family.packs and family.language != "triton"
    whole_a, whole_b, whole_c = whole_rows(problem)
    descriptors = descriptors or (of_kernel and whole_a and whole_b)
    whole_m = descriptors and problem.layout_a == Layout.COL
    rows, columns = config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"]
    if config.get("SWAP_AB"):
        rows, columns = columns, rows
    m = rows + (WHOLE_ROWS if whole_m else 13)
    n = columns + (WHOLE_ROWS if (whole_c if of_kernel else descriptors) else 29)
    k = 2 * config["BLOCK_SIZE_K"] * config["SPLIT_K"] + (WHOLE_ROWS if descriptors else 7)
    if family.equal_slices_are_views:
        # Its kernel is the problem's: for equal slices of K, or for others.
        is_equal = has_equal_slices(problem, config["SPLIT_K"])
        k = 2 * config["BLOCK_SIZE_K"] * config["SPLIT_K"]
        whole = WHOLE_ROWS if config["SPLIT_K"] == 1 else max(WHOLE_ROWS, slice_step(problem))
        k += whole * config["SPLIT_K"] if is_equal else chunk_elements(problem)
    if family.in_place:
        m, n = (tile + WHOLE_ROWS + side % WHOLE_ROWS for tile, side in ((rows, problem.m), (columns, problem.n)))
        k = 2 * config["BLOCK_SIZE_K"] * config["SPLIT_K"] + WHOLE_ROWS + problem.k % WHOLE_ROWS
    if family.by_small_side:
        m, n = (problem.m, n) if problem.m <= problem.n else (n, problem.n)
    return replace(problem, m=m, n=n, k=k, batch=min(problem.batch, COMPANION_BATCH))


def small_companion(problem: GemmProblem, config: dict[str, Any]) -> GemmProblem:
    """A problem of 2 x 2 whole tiles and a few blocks of K, for Triton's interpreter."""
    m, n = min(problem.m, 2 * config["BLOCK_SIZE_M"]), min(problem.n, 2 * config["BLOCK_SIZE_N"])
    if family_of(config["family"]).by_small_side:
        small, large = sorted((problem.m, problem.n))
        large = min(large, max(small + 1, 2 * config["BLOCK_SIZE_N"]))
        m, n = (small, large) if problem.m <= problem.n else (large, small)
    k = min(problem.k, 4 * config["BLOCK_SIZE_K"] * config["SPLIT_K"])
    return replace(problem, m=m, n=n, k=k, batch=min(problem.batch, COMPANION_BATCH))
