"""Rows of results files as the exports of GEMM's configurations take them."""

from __future__ import annotations

from gemm_tuner.consumers import CONSUMERS
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.config import KernelConfig, tile
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store.results import Row


def gemm_of(row: Row) -> GemmProblem:
    """The problem of a row. Raises UserError for another kind."""
    if not isinstance(row.problem, GemmProblem):
        kind = row.problem.kind
        takers = ", ".join(f"--to {name}" for name, one in CONSUMERS.items() if one.kind == kind)
        raise UserError(f"is a problem of the kind {kind}", where=row.where, accepted="a GEMM",
                        hint=f"export it {takers}" if takers else "")  # fmt: skip
    return row.problem


def tile_of(row: Row) -> KernelConfig:
    """The configuration of a row, which must have one."""
    assert row.config is not None
    return tile(row.config)
