"""This package's own fused MoE kernel (``templates/own_moe.py.j2``): its space, and the arguments of its launches."""

from __future__ import annotations

from typing import Any

from gemm_tuner.moe import alignment
from gemm_tuner.moe.launcher import Axes, Launcher
from gemm_tuner.moe.problem import MoeProblem

NAME = "own"
# Axes that no server's kernel has: programs that stay on each SM and take tile after tile (0: a program for each tile),
# whether the transposed product is computed, and whether weights are loaded through TMA descriptors.
OWN_FIELDS = ("PROGRAMS_PER_SM", "SWAP_AB", "W_BY_TMA")


class Own(Launcher):
    def axes(self, problem: MoeProblem, backend: str) -> Axes:
        least_k = 64 if problem.dtype == "fp8_w8a8" else 32
        axes: Axes = {
            "BLOCK_SIZE_M": [8, 16, 32, 64, 128],
            "BLOCK_SIZE_N": [32, 64, 128, 256],
            "BLOCK_SIZE_K": [k for k in (32, 64, 128, 256) if k >= least_k],
            "GROUP_SIZE_M": [1, 8, 32],
            "num_warps": [4, 8],
            "num_stages": [2, 3, 4, 5],
            "PROGRAMS_PER_SM": [0, 1, 2],
            "SWAP_AB": [0, 1],
            "W_BY_TMA": [0, 1],
        }
        if backend == "cuda":
            return axes
        of_amd: Axes = {
            "BLOCK_SIZE_M": [16, 32, 64, 128, 256],
            "num_warps": [2, 4, 8],
            "num_stages": [2],
            "SWAP_AB": [0],
            "W_BY_TMA": [0],
            "waves_per_eu": [0, 1, 2, 4],
            "matrix_instr_nonkdim": [16, 32],
            "kpack": [1, 2],
        }
        return {**axes, **of_amd}

    def launched_k(self, problem: MoeProblem, block_k: Any) -> Any:
        return block_k

    def can_launch(self, problem: MoeProblem, c: Any) -> Any:
        """A step along K has one scale of a row; of integers also several, of whole groups."""
        columns = problem.block_shape[1]
        if not columns:
            return c.BLOCK_SIZE_K > 0
        return (columns % c.BLOCK_SIZE_K == 0) | (problem.grouped & (c.BLOCK_SIZE_K % columns == 0))

    def sorts(self, problem: MoeProblem) -> bool:
        return bool(problem.global_E) or not alignment.is_sparse(problem.rows, problem.E)

    def ids_read(self, problem: MoeProblem, block_m: int) -> int:
        return self.room(problem, block_m)

    def swaps(self, problem: MoeProblem, arch: str, c: Any) -> Any:
        return c.SWAP_AB == 1


OWN = Own(NAME, "own_moe", has_pairs=True)
