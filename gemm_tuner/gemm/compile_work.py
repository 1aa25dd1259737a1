"""What compiling configurations takes, and which of them share a kernel; for a search, which weighs both."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from gemm_tuner.core.records import Target
from gemm_tuner.gemm.config import CONFIG_FIELDS
from gemm_tuner.gemm.descriptors import has_equal_slices, loads_by_descriptor
from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.gemm.problem import GemmProblem

# Seconds of a core. For CuTe DSL: what all kernels take, and what one of a tile of 256 x 208 takes beyond it (six
# kernels on a Xeon, 2026-11-25). For Triton: the middle of 0.2 to 0.35, which kernels take on an H200's machine.
CUTE_S, CUTE_TILE_S, TRITON_S = 0.35, 0.8, 0.28
LARGE_TILE = 256 * 208
# Of splitmix64: an odd factor and a shift that mix the bits of a number.
FACTOR, SHIFT = np.uint64(0xBF58476D1CE4E5B9), np.uint64(27)

Kernels = npt.NDArray[np.uint64]


def compile_work(candidates: pd.DataFrame, problem: GemmProblem, target: Target) -> tuple[Any, Any]:
    """``Workload.compile_work``. Families whose kernels serve all sizes have equal numbers where ``kernel_symbol`` and
    ``specialization`` are equal, and for all numbers of equal slices; numbers of others differ between problems."""
    axes = {name: candidates[name].to_numpy(np.int64) for name in CONFIG_FIELDS if name != "family"}
    axes["PROGRAMS_PER_SM"] = np.minimum(axes["PROGRAMS_PER_SM"], 1)
    axes["GROUP_SIZE_M"] = np.zeros_like(axes["GROUP_SIZE_M"])
    split_k: npt.NDArray[np.int64] = axes["SPLIT_K"]
    families = candidates["family"].to_numpy()
    equal = np.isin(split_k, [one for one in np.unique(split_k).tolist() if has_equal_slices(problem, one)])
    seconds = np.full(len(candidates), TRITON_S)
    of_kernel: Kernels = np.zeros(len(candidates), dtype=np.uint64)
    for name in np.unique(families).tolist():
        rows, family = families == name, family_of(name)
        serves_all = loads_by_descriptor(name, target)
        of_kernel[rows] = number_of(f"{name} {problem.signature if serves_all else problem.key}")
        if family.equal_slices_are_views:
            split_k = np.where(rows & equal, np.minimum(split_k, 2), split_k)
            of_kernel[rows & ~equal] ^= np.uint64(1)
        if family.language == "cute":
            tile = axes["BLOCK_SIZE_M"][rows] * axes["BLOCK_SIZE_N"][rows]
            seconds[rows] = CUTE_S + CUTE_TILE_S * tile / LARGE_TILE
    for column in {**axes, "SPLIT_K": split_k}.values():
        of_kernel = mixed(of_kernel, column.astype(np.uint64))
    return of_kernel, seconds


def number_of(text: str) -> np.uint64:
    """Stands for a text; even."""
    return np.uint64(zlib.crc32(text.encode()) * 2)


def mixed(numbers: Kernels, column: Kernels) -> Kernels:
    """Numbers that are equal where both are."""
    product = (numbers ^ column) * FACTOR
    return product ^ (product >> SHIFT)
