"""Fused MoE kernels in CuTe DSL (``templates/cute_moe.py.j2``): quack-kernels' class for Hopper over the rows of each
expert, which need no padding; the first GEMM loads tokens by their index.

What is said here of the library's class was read in quack-kernels 0.6.5 and seen in compiling with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemm_tuner.moe.launcher import Axes, Launcher
from gemm_tuner.moe.problem import SIXTEEN_BIT, MoeProblem

NAME = "cute"
ARCHITECTURE = "sm_90"
# Axes that the servers' kernels and ours in Triton do not have: blocks of a cluster along M, which load weights
# together, and whether two warp groups take tiles in turns.
CUTE_FIELDS = ("CLUSTER_M", "PINGPONG")
# 1: the up-projection's epilogue computes the activation. The times of its GEMMs then contain that of other work.
FUSED = "FUSED_ACTIVATION"
FUSED_KEY = "fused_kernel"  # by which a row names the fastest of those
FUSABLE = ("silu", "gelu", "gelu_tanh", "swigluoai")
BLOCK_K = 64  # rows that are loaded by their index are loaded in 128 bytes


class Cute(Launcher):
    def axes(self, problem: MoeProblem, backend: str) -> Axes:
        """GROUP_SIZE_M is the library's group of tiles along N, which an expert's tiles along M share."""
        return {
            "BLOCK_SIZE_M": [64, 128, 192, 256],
            "BLOCK_SIZE_N": [32, 64, 96, 128, 160, 192, 224, 256],
            "BLOCK_SIZE_K": [BLOCK_K],
            "GROUP_SIZE_M": [1, 2, 8],
            "CLUSTER_M": [1, 2],
            "PINGPONG": [0, 1],
            FUSED: [0, 1],
        }

    def launched_k(self, problem: MoeProblem, block_k: Any) -> Any:
        return block_k

    def launches_it(self, problem: MoeProblem, backend: str) -> bool:
        return problem.dtype in SIXTEEN_BIT

    def can_launch(self, problem: MoeProblem, c: Any) -> Any:
        return c.BLOCK_SIZE_K > 0

    def ids_read(self, problem: MoeProblem, block_m: int) -> int:
        return problem.rows

    def swaps(self, problem: MoeProblem, arch: str, c: Any) -> Any:
        """The library does not take swapped operands with rows of experts."""
        return c.BLOCK_SIZE_M < 0


CUTE = Cute(NAME, "cute_moe", has_pairs=True)


def is_fused(config: Mapping[str, Any]) -> bool:
    return config.get(FUSED) == 1
