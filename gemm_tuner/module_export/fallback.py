"""Configurations that nobody tuned, for sizes that a tuned one cannot run or that are far from all tuned ones."""

from __future__ import annotations

from dataclasses import replace

from gemm_tuner.descriptors import loads_by_descriptor
from gemm_tuner.dtypes import DTYPES
from gemm_tuner.records import UNUSED, GemmProblem, KernelConfig, Target

# Bytes along K of a block of the general tiles: 64 elements of bf16.
BLOCK_BYTES = 128
# (BLOCK_SIZE_M, BLOCK_SIZE_N, num_warps) of the general tiles. With 3 stages the largest takes 96 KiB of shared memory.
GENERAL_TILES = ((128, 128, 8), (64, 64, 4), (16, 64, 4), (64, 16, 4))


def pointer_twin(config: KernelConfig, target: Target) -> KernelConfig | None:
    """The gemm_tile with the tile of a kernel that loads through descriptors; None for one that does not.

    It needs no more shared memory: the same tiles in the same stages. Of three thirds of columns it takes two, since
    pointer kernels have no thirds.
    """
    if not loads_by_descriptor(config.family, target):
        return None
    block_n = config.BLOCK_SIZE_N // 3 * 2 if config.BLOCK_SIZE_N % 3 == 0 else config.BLOCK_SIZE_N
    unused = {field: UNUSED[field] for field in ("EPILOGUE_SUBTILE", "PROGRAMS_PER_SM", "WARP_SPECIALIZE")}
    return replace(config, family="gemm_tile", BLOCK_SIZE_N=block_n, **unused)


def general_configs(problem: GemmProblem, target: Target) -> tuple[KernelConfig, ...]:
    """A few pointer kernels that take every size of a class, the largest tile first."""
    block_k = BLOCK_BYTES // DTYPES[problem.dtype_a].size_bytes
    amd = {"matrix_instr_nonkdim": 16, "kpack": 1} if target.backend == "hip" else {}
    stages = 2 if target.backend == "hip" else 3
    return tuple(KernelConfig("gemm_tile", m, n, block_k, 8, 1, warps, stages, **amd) for m, n, warps in GENERAL_TILES)
