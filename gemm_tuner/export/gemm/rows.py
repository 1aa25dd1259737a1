"""Rows of results files as the exports of GEMM's configurations take them."""

from __future__ import annotations

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.config import KernelConfig, tile
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store.results import Row


def gemm_of(row: Row) -> GemmProblem:
    """The problem of a row. Raises UserError for another kind."""
    if not isinstance(row.problem, GemmProblem):
        raise UserError(f"is a problem of the kind {row.problem.kind}", where=row.where, accepted="a GEMM")
    return row.problem


def tile_of(row: Row) -> KernelConfig:
    """The configuration of a row, which must have one."""
    assert row.config is not None
    return tile(row.config)
