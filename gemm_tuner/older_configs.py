"""The configurations of ``--update`` in a run's store: its file may be the one that the run itself rewrites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gemm_tuner import results
from gemm_tuner.records import GemmProblem, KernelConfig
from gemm_tuner.store import Store

FACT = "older configurations"


def read(path: Path) -> dict[GemmProblem, KernelConfig]:
    """The configurations of a results file by problem, the first of each. Raises UserError."""
    older: dict[GemmProblem, KernelConfig] = {}
    for row in results.read(path).rows:
        if row.config is not None:
            older.setdefault(row.problem, row.config)
    return older


def keep(store: Store, older: Mapping[GemmProblem, KernelConfig]) -> None:
    """Stores them as they are when the run begins."""
    store.set_fact(FACT, [[problem.to_dict(), config.to_dict()] for problem, config in older.items()])


def kept(store: Store) -> dict[GemmProblem, KernelConfig]:
    """As they were when the run began."""
    return {GemmProblem.from_dict(problem): KernelConfig(**config) for problem, config in store.fact(FACT, [])}
