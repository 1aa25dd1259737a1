"""Problems of other sizes, at which a configuration is checked beside the tuned one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.gemm.problem import GemmProblem, Layout

# Rows that are loaded through TMA descriptors are multiples of 16 bytes; so many elements are, whatever the type.
WHOLE_ROWS = 16
# Matrices of a batch that are checked.
COMPANION_BATCH = 2


def check_problems(
    problem: GemmProblem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
) -> tuple[GemmProblem, ...]:
    """The sizes at which a configuration is checked; the arguments are those of ``core.workload.Workload``."""
    return small_companion(problem, config) if interpreted else problem, odd_companion(problem, config, descriptors)


def odd_companion(problem: GemmProblem, config: dict[str, Any], descriptors: bool) -> GemmProblem:
    """A small problem of odd sizes that the same tile covers with a ragged edge on every side: just over one tile in
    M and N, and a K that no BLOCK_SIZE_K or SPLIT_K divides.

    descriptors: the kernel loads through TMA descriptors; sizes that rows are made of are then multiples of 16.
    A family that keeps the smaller side whole keeps it here.
    """
    whole_m = descriptors and problem.layout_a == Layout.COL
    m = config["BLOCK_SIZE_M"] + (WHOLE_ROWS if whole_m else 13)
    n = config["BLOCK_SIZE_N"] + (WHOLE_ROWS if descriptors else 29)
    k = 2 * config["BLOCK_SIZE_K"] * config["SPLIT_K"] + (WHOLE_ROWS if descriptors else 7)
    if family_of(config["family"]).by_small_side:
        m, n = (problem.m, n) if problem.m <= problem.n else (n, problem.n)
    return replace(problem, m=m, n=n, k=k, batch=min(problem.batch, COMPANION_BATCH))


def small_companion(problem: GemmProblem, config: dict[str, Any]) -> GemmProblem:
    """An even problem of two tiles by two and a few blocks of K, for Triton's interpreter."""
    m, n = min(problem.m, 2 * config["BLOCK_SIZE_M"]), min(problem.n, 2 * config["BLOCK_SIZE_N"])
    if family_of(config["family"]).by_small_side:
        small, large = sorted((problem.m, problem.n))
        large = min(large, max(small + 1, 2 * config["BLOCK_SIZE_N"]))
        m, n = (small, large) if problem.m <= problem.n else (large, small)
    k = min(problem.k, 4 * config["BLOCK_SIZE_K"] * config["SPLIT_K"])
    return replace(problem, m=m, n=n, k=k, batch=min(problem.batch, COMPANION_BATCH))
