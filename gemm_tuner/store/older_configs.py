"""The configurations of ``--update`` in a run's store: its file may be the one that the run itself rewrites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gemm_tuner.core.records import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store import results
from gemm_tuner.store.store import Store

FACT = "older configurations"
SERVED_FACT = "older configurations for servers"

Served = Mapping[GemmProblem, Mapping[str, KernelConfig]]


def read(path: Path) -> dict[GemmProblem, KernelConfig]:
    """The configurations of a results file by problem, the first of each. Raises UserError."""
    older: dict[GemmProblem, KernelConfig] = {}
    for row in results.read(path).rows:
        if row.config is not None:
            older.setdefault(row.problem, row.config)
    return older


def read_served(path: Path) -> dict[GemmProblem, dict[str, KernelConfig]]:
    """What the rows of a results file have for servers, by problem and server. Raises UserError."""
    older: dict[GemmProblem, dict[str, KernelConfig]] = {}
    for row in results.read(path).rows:
        if row.served:
            older.setdefault(row.problem, {one.consumer: one.config for one in row.served})
    return older


def keep(store: Store, older: Mapping[GemmProblem, KernelConfig], served: Served) -> None:
    """Stores them as they are when the run begins."""
    flat = [[p.to_dict(), name, config.to_dict()] for p, one in served.items() for name, config in one.items()]
    store.set_fact(SERVED_FACT, flat)
    store.set_fact(FACT, [[problem.to_dict(), config.to_dict()] for problem, config in older.items()])


def kept(store: Store) -> dict[GemmProblem, KernelConfig]:
    """As they were when the run began."""
    return {GemmProblem.from_dict(problem): KernelConfig(**config) for problem, config in store.fact(FACT, [])}


def kept_served(store: Store) -> dict[GemmProblem, dict[str, KernelConfig]]:
    """Those of servers as they were when the run began."""
    found: dict[GemmProblem, dict[str, KernelConfig]] = {}
    for problem, name, config in store.fact(SERVED_FACT, []):
        found.setdefault(GemmProblem.from_dict(problem), {})[name] = KernelConfig(**config)
    return found
