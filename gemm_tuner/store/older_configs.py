"""Stores the configurations of ``--update`` with the run, because the run may overwrite the file that has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gemm_tuner.core.records import Config, Problem
from gemm_tuner.core.workload import config_from_dict, problem_from_dict
from gemm_tuner.store import results
from gemm_tuner.store.store import Store

FACT = "older configurations"
SERVED_FACT = "older configurations for servers"

Served = Mapping[Problem, Mapping[str, Config]]


def read(path: Path) -> tuple[dict[Problem, Config], dict[Problem, dict[str, Config]]]:
    """(configurations of a results file by problem, configurations for servers by problem and server).

    If a problem has several rows, the first one is used. Raises UserError.
    """
    older: dict[Problem, Config] = {}
    served: dict[Problem, dict[str, Config]] = {}
    for row in results.read(path).rows:
        if row.config is not None:
            older.setdefault(row.problem, row.config)
        if row.served:
            served.setdefault(row.problem, {one.consumer: one.config for one in row.served})
    return older, served


def keep(store: Store, older: Mapping[Problem, Config], served: Served) -> None:
    """Stores the configurations at the start of the run. served: by problem and server."""
    flat = [[p.to_dict(), name, config.to_dict()] for p, one in served.items() for name, config in one.items()]
    store.set_fact(SERVED_FACT, flat)
    store.set_fact(FACT, [[problem.to_dict(), config.to_dict()] for problem, config in older.items()])


def kept(store: Store) -> dict[Problem, Config]:
    """The stored configurations by problem."""
    pairs = ((problem_from_dict(problem), config) for problem, config in store.fact(FACT, []))
    return {problem: config_from_dict(problem.kind, config) for problem, config in pairs}


def kept_served(store: Store) -> dict[Problem, dict[str, Config]]:
    """The stored configurations for servers, by problem and server."""
    found: dict[Problem, dict[str, Config]] = {}
    for row, name, config in store.fact(SERVED_FACT, []):
        problem = problem_from_dict(row)
        found.setdefault(problem, {})[name] = config_from_dict(problem.kind, config)
    return found
