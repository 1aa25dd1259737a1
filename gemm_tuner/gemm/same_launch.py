"""What a launch depends on beside the code of its kernel."""

from __future__ import annotations

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem


def launch_of(problem: GemmProblem, config: KernelConfig, num_sms: int) -> tuple[str | int, ...]:
    """What a launch depends on beside the code: equal for two configurations of one code whose programs do the same
    work in the same order, with the same descriptors and scratch."""
    rows = -(-problem.m // config.BLOCK_SIZE_M)
    columns = -(-problem.n // config.BLOCK_SIZE_N)
    # Groups of all rows, or of one, are the same whatever is asked; so is any order of a single row or column.
    group = 1 if 1 in (rows, columns) else min(config.GROUP_SIZE_M, rows)
    return (
        *(config.family, config.BLOCK_SIZE_M, config.BLOCK_SIZE_N, config.BLOCK_SIZE_K, config.SPLIT_K),
        *(config.EPILOGUE_SUBTILE, group, programs_of(problem, config, rows * columns, num_sms)),
    )


def programs_of(problem: GemmProblem, config: KernelConfig, tiles: int, num_sms: int) -> int:
    """The persistent grid, as ``calls`` of gemm_persistent and gemm_stream_k have it; 0 for one program a tile."""
    work = tiles
    if config.family == "gemm_stream_k":
        work *= -(-problem.k // config.BLOCK_SIZE_K)
    return min(work, num_sms * config.PROGRAMS_PER_SM)
