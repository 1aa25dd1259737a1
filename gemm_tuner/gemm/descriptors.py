"""Where kernels load tiles through TMA descriptors: families, and the rows that descriptors take."""

from __future__ import annotations

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Target
from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.gemm.problem import GemmProblem

CHUNK_BYTES = 16  # rows start at multiples of it (CUDA Driver API, cuTensorMapEncodeTiled: globalStrides)


def loads_by_descriptor(family: str, target: Target) -> bool:
    """Whether a family's kernels load tiles through TMA descriptors on this target."""
    return family_of(family).by_descriptors and target.facts.tma


def rows_fit_descriptors(problem: GemmProblem) -> bool:
    """Whether the rows of A, B and C, as they lie in memory, are whole CHUNK_BYTES."""
    rows = (
        (problem.k if problem.layout_a == "row" else problem.m, problem.dtype_a),
        (problem.n if problem.layout_b == "row" else problem.k, problem.dtype_b),
        (problem.n, problem.dtype_c),
    )
    return all(extent * DTYPES[dtype].size_bytes % CHUNK_BYTES == 0 for extent, dtype in rows)
