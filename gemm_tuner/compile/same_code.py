"""Which configurations of a size are one kernel under several names, so that one of them is timed for all."""

from __future__ import annotations

from gemm_tuner.core.records import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.space.size_state import SizeState

Launch = tuple[str | int, ...]


def duplicates(state: SizeState, num_sms: int) -> dict[str, str]:
    """Compiled configurations by the name of the equal one that stands for them, which is not in the keys itself.

    Equal are those of the same code (CompileResult.binary_hash) and the same launch. One that has ended, timed or not,
    stands for the others; else the simplest: fewest stages, then warps, then by name.
    """
    groups: dict[tuple[str, Launch], list[str]] = {}
    for name, row in state.rows.items():
        if row.get("binary_hash"):
            key = (row["binary_hash"], launch_of(state.problem, state.kept[name], num_sms))
            groups.setdefault(key, []).append(name)

    def rank(name: str) -> tuple[bool, int, int, str]:
        config = state.kept[name]
        return "status" not in state.rows[name], config.num_stages, config.num_warps, name

    found = {}
    for names in groups.values():
        first = min(names, key=rank)
        found.update({name: first for name in names if name != first})
    return found


def launch_of(problem: GemmProblem, config: KernelConfig, num_sms: int) -> Launch:
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
