"""The rules keep what won in the results files that are shipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pandas as pd
import pytest
from cluster_walk import walk
from samples import ROOT, RULES, device

from gemm_tuner.core.records import Problem
from gemm_tuner.gemm.config import KernelConfig, tile
from gemm_tuner.gemm.problem import as_gemm
from gemm_tuner.space import prune, space
from gemm_tuner.space.rule import Rule
from gemm_tuner.space.space import SpaceFile
from gemm_tuner.store import results

TUNED = ROOT / "results" / "tuned"
FILES = sorted(path.name for path in TUNED.glob("nvidia_h200_*.yaml") if "_moe_" not in path.name)
# A winner that is this little ahead of its runner-up may be missed, percent; as where it is a tie.
LITTLE_PCT = 1.0


@cache
def shipped_rules() -> tuple[Rule, ...]:
    return prune.load_rules(RULES)


@cache
def shipped_space() -> SpaceFile:
    return space.load(space.space_path(RULES, "sm_90"), "sm_90")


def rejected_by(config: KernelConfig, problem: Problem) -> str:
    """The rule that cuts a configuration of the shipped space; "" for none."""
    families = shipped_space().families
    columns = prune.columns_of(pd.DataFrame([config.to_dict()]))
    columns.largest = {
        axis: max(max(axes[axis]) for axes in families.values()) for axis in next(iter(families.values()))
    }
    columns.families, columns.values_of = frozenset(families), prune.values_in(families)
    return str(prune.apply(columns, problem, device("sm_90"), shipped_rules()).rejected_by[0])


def walked_alike(config: KernelConfig, problem: Problem) -> Iterator[KernelConfig]:
    """The configuration in other groups, in which it walks over the clusters in the same order."""
    of = as_gemm(problem)
    sides = (of.n, of.m) if config.SWAP_AB else (of.m, of.n)
    first = -(-sides[0] // (config.BLOCK_SIZE_M * config.CLUSTER_M))
    second = -(-sides[1] // (config.BLOCK_SIZE_N * config.CLUSTER_N))
    for group in shipped_space().families[config.family]["GROUP_SIZE_M"]:
        if group != config.GROUP_SIZE_M and walk(first, second, group) == walk(first, second, config.GROUP_SIZE_M):
            yield replace(config, GROUP_SIZE_M=group)


@pytest.mark.parametrize("file", FILES)
def test_the_rules_keep_the_winners_that_were_clearly_ahead(file: str) -> None:
    missed = {}
    for row in results.read(TUNED / file).rows:
        assert row.config is not None
        config = tile(row.config)
        rule = rejected_by(config, row.problem)
        if rule == "orders_of_clusters" and not all(
            rejected_by(one, row.problem) for one in walked_alike(config, row.problem)
        ):
            continue
        if rule and not row.facts["tie"] and row.facts.get("gap_pct", 100.0) >= LITTLE_PCT:
            missed[row.problem.key] = rule
    assert missed == {}
