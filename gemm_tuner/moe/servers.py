"""What each server launches for a fused MoE layer: its search space, its default, and how it changes a configuration
before the launch.

According to vLLM 0.33.0 (fused_moe.py, benchmark_moe.py) and SGLang 0.5.23 (fused_moe_triton_config.py and its tuner).
A configuration has the keys of the servers' files; the two GEMMs of a call share it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemm_tuner.moe import alignment
from gemm_tuner.moe.alignment import Buckets
from gemm_tuner.moe.launcher import FIELDS, TMA, Axes, Launcher
from gemm_tuner.moe.problem import SIXTEEN_BIT, MoeProblem

# The numbers of tokens in files of vLLM's tuner.
GRID = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
# What vLLM's kernel in CUDA for 4-bit integers takes: sizes of groups, and most rows an expert.
CUDA_GROUPS, CUDA_ROWS = (32, 64, 128), 6


@dataclass(frozen=True)
class Server(Launcher):
    """A server.

    places: paths of its kernel below site-packages, newest version first.
    marks:  arguments that only this server's kernel has; marks_of_grouped: those of its kernel for integers in groups.
    cuda_k: values of BLOCK_SIZE_K of its tuner on NVIDIA.
    version: whose arguments its kernel is to have.
    takes_shared_experts: it puts shared experts of some models into the layer.
    """

    package: str
    places: tuple[str, ...]
    marks: tuple[str, ...]
    cuda_k: tuple[int, ...]
    marks_of_grouped: tuple[str, ...] = ()
    version: str = field(kw_only=True)
    takes_shared_experts: bool = field(default=False, kw_only=True)

    def axes(self, problem: MoeProblem, backend: str) -> Axes:
        """The search space of the server's own tuner. On NVIDIA it also has blocks of 8 rows for fp8, which occur in
        files that servers ship, and tiles smaller than a scale block for block-scaled fp8."""
        if backend == "cuda":
            columns = [32, *self.cuda_k] if problem.grouped and 32 not in self.cuda_k else self.cuda_k
            return {
                "BLOCK_SIZE_M": [*([8] if problem.dtype == "fp8_w8a8" else []), 16, 32, 64, 128, 256],
                "BLOCK_SIZE_N": [32, 64, 128, 256],
                "BLOCK_SIZE_K": list(columns),
                "GROUP_SIZE_M": [1, 16, 32, 64],
                "num_warps": [4, 8],
                "num_stages": [2, 3, 4, 5],
            }
        sixteen_bit = problem.dtype in SIXTEEN_BIT
        blocks = [16, 32, 64, 128, 256]
        axes: Axes = {
            "BLOCK_SIZE_M": blocks,
            "BLOCK_SIZE_N": blocks,
            "BLOCK_SIZE_K": blocks if sixteen_bit else blocks[1:],
            "GROUP_SIZE_M": [1, 4, 8, 16, 32],
            "num_warps": [1, 2, 4, 8],
            "num_stages": [2],
            "waves_per_eu": [0, 1, 2, 4],
        }
        return {**axes, "matrix_instr_nonkdim": [16, 32], "kpack": [1, 2]} if sixteen_bit else axes

    @abstractmethod
    def default(self, problem: MoeProblem, arch: str) -> dict[str, int]:
        """What it launches without a tuned file."""


class Vllm(Server):
    def launched_k(self, problem: MoeProblem, block_k: Any) -> Any:
        import numpy as np

        return np.minimum(block_k, min(problem.block_shape)) if problem.scaling == "block" else block_k

    def can_launch(self, problem: MoeProblem, c: Any) -> Any:
        if problem.scaling != "block":
            return whole_groups(problem, c)
        columns = problem.block_shape[1]
        return columns % self.launched_k(problem, c.BLOCK_SIZE_K) == 0

    def sorts(self, problem: MoeProblem) -> bool:
        return problem.grouped or bool(problem.global_E) or not alignment.is_sparse(problem.rows, problem.E)

    def launches_it(self, problem: MoeProblem, backend: str) -> bool:
        """Of few rows of 4-bit integers it launches a kernel in CUDA."""
        in_cuda = problem.dtype == "int4_w4a16" and problem.block_shape[1] in CUDA_GROUPS and backend == "cuda"
        return not in_cuda or problem.rows > CUDA_ROWS * problem.E

    def ids_read(self, problem: MoeProblem, block_m: int) -> int:
        if not self.sorts(problem):
            return problem.rows * block_m
        room = self.room(problem, block_m)
        return min(room, problem.rows * block_m) if block_m > problem.M else room

    def default(self, problem: MoeProblem, arch: str) -> dict[str, int]:
        m, amd = problem.M, arch.startswith("gfx")
        if problem.grouped:  # num_warps and num_stages are Triton's own
            of_one, of_more = (32, 64), (64, 32)
            block_m, stages = 16 if m <= 20 else 32 if m <= 40 else 64, 2 if amd else 3
            up, down = of_one if m == 1 else of_more, of_one if problem.rows == 1 else of_more
            other = {"down_BLOCK_SIZE_N": down[0], "down_BLOCK_SIZE_K": down[1]} if up != down else {}
            return {**entry(block_m, *up, 1, 4, stages), **other}
        if problem.scaling == "block":
            rows, columns = problem.block_shape
            narrow = not amd and m <= 8 and rows % 64 == 0
            stages = 2 if amd else 4 if narrow and m <= 4 else 3
            return entry(16 if m <= 64 else 64, 64 if narrow else rows, columns, 1 if m <= 16 else 32, 4, stages)
        block_m = 16 if m <= 32 else 32 if m <= 96 else 64 if m <= 512 else 128
        return entry(
            block_m,
            64 if m <= 64 else 128,
            128 if problem.dtype == "fp8_w8a8" or m <= 64 else 64,
            16 if m // problem.E > 128 else 1,
            4 if m <= 128 else 8,
            2 if amd else 4 if m <= 32 else 3,
        )


class Sglang(Server):
    def axes(self, problem: MoeProblem, backend: str) -> Axes:
        by_tma: Axes = {TMA: [0, 1]} if self.has_tma(problem, backend) else {}
        return {**super().axes(problem, backend), **by_tma}

    def has_tma(self, problem: MoeProblem, backend: str) -> bool:
        """On NVIDIA, types that files which it ships have TMA for: its sorted rows of A bring no other scales along."""
        return backend == "cuda" and problem.scaling in ("none", "block")

    def launched_k(self, problem: MoeProblem, block_k: Any) -> Any:
        return block_k

    def can_launch(self, problem: MoeProblem, c: Any) -> Any:
        if problem.scaling != "block":
            return whole_groups(problem, c)
        rows, columns = problem.block_shape
        return (columns % c.BLOCK_SIZE_K == 0) & ((c.BLOCK_SIZE_N % rows == 0) | (rows % c.BLOCK_SIZE_N == 0))

    def buckets(self, problem: MoeProblem) -> Buckets:
        return Buckets(problem.E + 1, 1)

    def room(self, problem: MoeProblem, block_m: int) -> int:
        """Its alignment has one expert more, for rows of other ranks, and writes four ids at a time."""
        return -(-alignment.room(problem.rows, problem.E + 1, block_m) // 4) * 4

    def waits_for_earlier_kernels(self, arch: str) -> bool:
        return arch.startswith("sm_") and int(re.sub("[^0-9]", "", arch)) >= 90

    def ids_read(self, problem: MoeProblem, block_m: int) -> int:
        return self.room(problem, block_m)

    def default(self, problem: MoeProblem, arch: str) -> dict[str, int]:
        few, amd = problem.M <= problem.E, arch.startswith("gfx")
        if problem.scaling == "block":
            return entry(64, *problem.block_shape, 32, 4, 2 if amd else 3)
        if problem.dtype == "fp8_w8a8":
            stages = 2 if amd else 4
            return entry(64, 128, 128, 1, 4, stages) if few else entry(128, 256, 128, 32, 8, stages)
        # Without these keys Triton's defaults apply: 4 warps, 3 stages on NVIDIA and 2 on AMD.
        stages = 2 if amd else 3
        return entry(16, 32, 64, 1, 4, stages) if few else entry(64, 64, 32, 8, 4, stages)


def whole_groups(problem: MoeProblem, c: Any) -> Any:
    """Kernels read integers in groups without a mask along K."""
    fits = c.BLOCK_SIZE_K > 0
    return fits & (problem.N % c.BLOCK_SIZE_K == 0) & (problem.K % c.BLOCK_SIZE_K == 0) if problem.grouped else fits


def entry(*values: int) -> dict[str, int]:
    return dict(zip(FIELDS, values, strict=True))


SERVERS: Mapping[str, Server] = {
    one.name: one
    for one in (
        Vllm(
            "vllm",
            "vllm_moe",
            "vllm",
            ("vllm/model_executor/layers/fused_moe/fused_moe.py",),
            ("naive_block_assignment", "SPLIT_K"),
            (64, 128, 256),
            marks_of_grouped=("block_k_diviable",),
            version="vLLM 0.33",
        ),
        Sglang(
            "sglang",
            "sglang_moe",
            "sglang",
            (
                "sglang/kernels/ops/moe/fused_moe_triton_kernels.py",
                "sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_kernels.py",
            ),
            ("a_desc", "even_Ks"),
            (32, 64, 128, 256),
            has_pairs=True,
            version="SGLang 0.5.23",
            takes_shared_experts=True,
            marks_of_grouped=("even_Ks",),
        ),
    )
}
