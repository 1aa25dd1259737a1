"""What launches a fused MoE kernel: a server, or this package for its own kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from gemm_tuner.moe import alignment
from gemm_tuner.moe.alignment import Buckets
from gemm_tuner.moe.problem import MoeProblem

FIELDS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
# Of SGLang's entries: its kernel loads through tensor descriptors where this is true.
TMA = "USE_TMA"
AMD_FIELDS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
Axes = dict[str, list[int]]


@dataclass(frozen=True)
class Launcher(ABC):
    """A launcher. A configuration has the keys of servers' files, and those of its own kernel.

    family:    family of its configurations.
    has_pairs: the two GEMMs may have different configurations with the same BLOCK_SIZE_M.
    """

    name: str
    family: str
    has_pairs: bool = field(default=False, kw_only=True)

    @abstractmethod
    def axes(self, problem: MoeProblem, backend: str) -> Axes:
        """The search space."""

    def has_tma(self, problem: MoeProblem, backend: str) -> bool:
        """Whether its configurations have the axis TMA."""
        return False

    @abstractmethod
    def launched_k(self, problem: MoeProblem, block_k: Any) -> Any:
        """The BLOCK_SIZE_K that it passes to the kernel."""

    def launches_it(self, problem: MoeProblem, backend: str) -> bool:
        """Whether it launches the kernel in Triton at all."""
        return True

    @abstractmethod
    def can_launch(self, problem: MoeProblem, c: Any) -> Any:
        """Whether its kernel computes correct results with the tiles of ``c`` (columns, or one configuration)."""

    def sorts(self, problem: MoeProblem) -> bool:
        return True

    def buckets(self, problem: MoeProblem) -> Buckets:
        """What rows are sorted by: here every expert of every rank."""
        return Buckets(problem.routed_E, 0)

    def room(self, problem: MoeProblem, block_m: int) -> int:
        """The length of the sorted ids."""
        return alignment.room(problem.rows, problem.routed_E, block_m)

    def waits_for_earlier_kernels(self, arch: str) -> bool:
        """Whether its launcher compiles in the instructions of programmatic dependent launch."""
        return False

    @abstractmethod
    def ids_read(self, problem: MoeProblem, block_m: int) -> int:
        """EM, the number of rows that the grid covers."""

    def swaps(self, problem: MoeProblem, arch: str, c: Any) -> Any:
        """Whether the kernel computes the transposed product, which can use fewer rows than a warp group's 64. c:
        columns, or one configuration."""
        return (problem.dtype == "fp8_w8a8") & (arch == "sm_90") & (c.BLOCK_SIZE_M < 64) & (c.BLOCK_SIZE_N >= 64)
