"""The rules keep what won in the results files that are shipped."""

from __future__ import annotations

import pandas as pd
import pytest
from samples import ROOT, RULES, device

from gemm_tuner.gemm.config import tile
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
    for row in results.read(TUNED / file).rows:
        assert row.config is not None
        # A group beyond a whole side is the same order as one half as large.
        won = tile(row.config).to_dict()
        same = [won, {**won, "GROUP_SIZE_M": won["GROUP_SIZE_M"] // 2}] if won["GROUP_SIZE_M"] > 1 else [won]
        columns = prune.columns_of(pd.DataFrame(same))
        columns.largest, columns.families = largest, frozenset(loaded.families)
        rejected = prune.apply(columns, row.problem, device("sm_90"), rules).rejected_by
        rule = str(rejected[0]) if all(rejected) else ""
        if rule and not row.facts["tie"] and row.facts.get("gap_pct", 100.0) >= LITTLE_PCT:
            missed[row.problem.key] = rule
    assert missed == {}
