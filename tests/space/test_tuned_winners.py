"""The rules keep what won in the results files that are shipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import pytest
from cluster_walk import walk
from samples import ROOT, RULES, device

from gemm_tuner.gemm.config import KernelConfig, tile
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.space import prune, space
from gemm_tuner.store import results

TUNED = ROOT / "results" / "tuned"
FILES = sorted(path.name for path in TUNED.glob("nvidia_h200_*.yaml") if "_moe_" not in path.name)
# A winner that is this little ahead of its runner-up may be missed, percent; as where it is a tie.
LITTLE_PCT = 1.0


@pytest.mark.parametrize("file", FILES)
def test_the_rules_keep_the_winners_that_were_clearly_ahead(file: str) -> None:
    rules, loaded = prune.load_rules(RULES), space.load(space.space_path(RULES, "sm_90"), "sm_90")
    spans = list(loaded.families.values())
    largest = {axis: max(value for axes in spans for value in axes[axis]) for axis in spans[0]}
    missed = {}

    def values_of(family: str, axis: str) -> tuple[int, ...]:
        return tuple(sorted(loaded.families[family].get(axis, (0,))))

    for row in results.read(TUNED / file).rows:
        assert row.config is not None
        columns = prune.columns_of(pd.DataFrame([tile(row.config).to_dict()]))
        columns.largest, columns.families, columns.values_of = largest, frozenset(loaded.families), values_of
        rule = str(prune.apply(columns, row.problem, device("sm_90"), rules).rejected_by[0])
        if rule == "orders_of_clusters" and is_walked_by_less(tile(row.config), as_gemm(row.problem), values_of):
            continue
        if rule and not row.facts["tie"] and row.facts.get("gap_pct", 100.0) >= LITTLE_PCT:
            missed[row.problem.key] = rule
    assert missed == {}


def is_walked_by_less(
    config: KernelConfig, problem: GemmProblem, values_of: Callable[[str, str], Sequence[int]]
) -> bool:
    """Whether a smaller group of the family walks over the clusters in the same order."""
    sides = (problem.n, problem.m) if config.SWAP_AB else (problem.m, problem.n)
    first = -(-sides[0] // (config.BLOCK_SIZE_M * config.CLUSTER_M))
    second = -(-sides[1] // (config.BLOCK_SIZE_N * config.CLUSTER_N))
    smaller = [group for group in values_of(config.family, "GROUP_SIZE_M") if group < config.GROUP_SIZE_M]
    return any(walk(first, second, group) == walk(first, second, config.GROUP_SIZE_M) for group in smaller)
