"""Untuned configurations for sizes that no tuned configuration can run, or that are far from all tuned sizes."""

from __future__ import annotations

from dataclasses import replace

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Target
from gemm_tuner.gemm.config import UNUSED, KernelConfig
from gemm_tuner.gemm.descriptors import loads_by_descriptor
from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.gemm.problem import GemmProblem

# Rows that are not a multiple of 16 bytes are loaded by element through registers. With more than this number of
# elements of A and B per thread, kernels spill (Triton 3.9 for sm_90, bf16: 64 x 128 x 64 spills with 4 warps, but not
# with 8).
MOST_LOADED = 64
# Fields that gemm_tile does not use.
PARTS_OF_OTHERS = ("EPILOGUE_SUBTILE", "PROGRAMS_PER_SM", "WARP_SPECIALIZE", "ROW_STEP", "PACK_BLOCK")
MOST_AREA = 128 * 128
# (BLOCK_SIZE_M, BLOCK_SIZE_N, num_warps) of the general tiles. With 3 stages the largest needs 96 KiB of shared memory.
GENERAL_TILES = ((128, 128, 8), (64, 64, 4), (16, 64, 4), (64, 16, 4))


def pointer_fallback(problem: GemmProblem, config: KernelConfig, target: Target) -> KernelConfig | None:
    """The gemm_tile configuration most similar to a kernel that loads through descriptors or packs; None for other
    kernels.

    It has the same tile, reduced to MOST_AREA and MOST_LOADED. A column count of three times a power of two is reduced
    to two times that power, because pointer kernels only support powers of two. It needs no more shared memory: the
    tile is not larger, and the number of stages is the same.
    """
    packs = family_of(config.family).packs and target.facts.tma
    if not loads_by_descriptor(config.family, target) and not packs:
        return None
    block_m, block_n = config.BLOCK_SIZE_M, config.BLOCK_SIZE_N
    block_n = block_n // 3 * 2 if block_n % 3 == 0 else block_n
    while block_m * block_n > MOST_AREA:
        block_m, block_n = (block_m // 2, block_n) if block_m > block_n else (block_m, block_n // 2)
    block_k = min(config.BLOCK_SIZE_K, _block_k(problem))
    few_warps = (block_m + block_n) * block_k <= MOST_LOADED * 4 * target.warp_size
    unused = {field: UNUSED[field] for field in PARTS_OF_OTHERS}
    tile = {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k}
    return replace(config, family="gemm_tile", num_warps=4 if few_warps else 8, **tile, **unused)


def _block_k(problem: GemmProblem) -> int:
    """BLOCK_SIZE_K of general tiles, which keeps the largest within MOST_LOADED: 64, and 32 for fp32."""
    return 64 if DTYPES[problem.dtype_a].size_bytes <= 2 else 32


def general_configs(problem: GemmProblem, target: Target) -> tuple[KernelConfig, ...]:
    """A few pointer kernels that support every size of a signature, the largest tile first."""
    block_k = _block_k(problem)
    amd = {"matrix_instr_nonkdim": 16, "kpack": 1} if target.backend == "hip" else {}
    stages = 2 if target.backend == "hip" else 3
    return tuple(KernelConfig("gemm_tile", m, n, block_k, 8, 1, warps, stages, **amd) for m, n, warps in GENERAL_TILES)
