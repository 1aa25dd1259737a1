"""Which kernels load tiles through TMA descriptors, and which matrices descriptors can describe."""

from __future__ import annotations

import math

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Target
from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem

CHUNK_BYTES = 16  # rows must start at multiples of it (CUDA Driver API, cuTensorMapEncodeTiled: globalStrides)


def loads_by_descriptor(family: str, target: Target) -> bool:
    """Whether a family's kernels load A and B, uncopied, through TMA descriptors, which need aligned rows."""
    return family_of(family).by_descriptors and target.facts.tma


def whole_rows(problem: GemmProblem) -> tuple[bool, bool, bool]:
    """For A, B and C: whether its rows, as stored in memory, are a multiple of CHUNK_BYTES."""
    a, b = map(_is_whole, rows_of_operands(problem), (problem.dtype_a, problem.dtype_b))
    return a, b, _is_whole(problem.n, problem.dtype_c)


def rows_of_operands(problem: GemmProblem) -> tuple[int, int]:
    """Elements of a row of A and of B, as stored in memory."""
    return (
        problem.k if problem.layout_a == "row" else problem.m,
        problem.n if problem.layout_b == "row" else problem.k,
    )


def elements_a_load(problem: GemmProblem) -> tuple[int, int]:
    """Neighbours in a row of A and of B that one load through a pointer takes: the largest power of two that divides
    the row, of CHUNK_BYTES at most."""
    a, b = (
        math.gcd(row, CHUNK_BYTES // DTYPES[dtype].size_bytes)
        for row, dtype in zip(rows_of_operands(problem), (problem.dtype_a, problem.dtype_b), strict=True)
    )
    return a, b


def _is_whole(extent: int, dtype: str) -> bool:
    return extent * DTYPES[dtype].size_bytes % CHUNK_BYTES == 0


def rows_fit_descriptors(problem: GemmProblem) -> bool:
    """Whether the rows of all matrices are multiples of CHUNK_BYTES."""
    return all(whole_rows(problem))


def has_equal_slices(problem: GemmProblem, split_k: int) -> bool:
    """Whether split_k slices of K are equal, and each starts where a view may start."""
    return split_k == 1 or problem.k % (split_k * slice_step(problem)) == 0


def slice_step(problem: GemmProblem) -> int:
    """Elements along K of which a slice that is a view has a multiple: a chunk, or a block that has a scale."""
    return SCALE_BLOCK if problem.scaling == "block" else chunk_elements(problem)


def chunk_elements(problem: GemmProblem) -> int:
    """Elements of A in CHUNK_BYTES."""
    return CHUNK_BYTES // DTYPES[problem.dtype_a].size_bytes
