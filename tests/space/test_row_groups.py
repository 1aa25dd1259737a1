"""Rules asked about one row of many that differ in nothing they read cut what they cut when asked about every row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rule_cases import thin_space
from samples import ARCHS, columns, config, device, problem

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.workload import workload_of
from gemm_tuner.gemm import axes
from gemm_tuner.gemm.problem import Layout
from gemm_tuner.space import prune
from gemm_tuner.space.rule import VALIDITY, Rule

H200 = device("sm_90")
SIZES = [
    problem(4096, 4096, 4096),
    replace(problem(17, 5120, 5120), layout_b=Layout.COL),
    problem(333, 777, 1111),
    problem(512, 512, 512, "fp16"),
    replace(problem(4096, 4096, 4096), bias=True),
]
FIELDS = ("BLOCK_SIZE_M", "GROUP_SIZE_M", "num_warps", "num_stages", "SPLIT_K", "WARP_SPECIALIZE")
FAMILIES = {
    "gemm_tile": {**dict.fromkeys(axes.AXES, (1,)), "BLOCK_SIZE_M": (16, 32, 64), "GROUP_SIZE_M": (1, 8, 4)},
    "gemm_persistent": {**dict.fromkeys(axes.AXES, (2,)), "num_warps": (8, 4), "num_stages": (2, 3, 4, 5)},
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("heuristics", [True, False])
def test_a_space_with_its_axes_has_the_verdicts_of_every_row(arch: str, heuristics: bool) -> None:
    candidates = thin_space(arch, heuristics=heuristics)
    of = candidates.columns, device(arch), candidates.rules
    for size in SIZES:
        rows = prune.apply(of[0], size, *of[1:])
        groups = prune.apply(of[0], size, *of[1:], candidates.axes)
        assert groups.rejected_by.tolist() == rows.rejected_by.tolist()
        assert groups.kept.tolist() == rows.kept.tolist() and groups.kept.dtype == rows.kept.dtype
        assert groups.funnel == rows.funnel


def made_up(seed: int) -> tuple[Rule, ...]:
    """Rules that reject some combinations of the values of up to three axes, one axis more where the first is 16."""
    draw = np.random.default_rng(seed)

    def rule(number: int) -> Rule:
        *read, if_16 = draw.choice(FIELDS, size=draw.integers(2, 5), replace=False).tolist()
        divisor, rest = int(draw.integers(2, 6)), int(draw.integers(0, 2))
        of_families = () if draw.integers(3) else ("gemm_persistent",)

        def keep(c: Any, p: Any, d: Any) -> Any:
            found = sum(getattr(c, axis) * (3 + at) for at, axis in enumerate(read))
            if (c.BLOCK_SIZE_M == 16).any():
                found = found + np.where(c.BLOCK_SIZE_M == 16, getattr(c, if_16), 0)
            return found // 2 % divisor != rest

        return Rule(f"rule_{number}", VALIDITY, "why", keep, families=of_families)

    return tuple(rule(number) for number in range(4))


@pytest.mark.parametrize("seed", range(30))
def test_rules_that_read_other_axes_for_other_rows(seed: int) -> None:
    rules, some = made_up(seed), prune.columns_of(axes.frame(FAMILIES))
    rows, groups = (prune.apply(some, SIZES[0], H200, rules, of) for of in (None, FAMILIES))
    assert groups.rejected_by.tolist() == rows.rejected_by.tolist()
    assert groups.kept.tolist() == rows.kept.tolist() == np.flatnonzero(rows.rejected_by == "").tolist()
    assert groups.funnel == rows.funnel


def test_a_rule_is_asked_about_what_it_reads_alone() -> None:
    asked: list[int] = []

    def keep(c: Any, p: Any, d: Any) -> Any:
        asked.append(len(c.num_warps))
        return c.num_warps == 4

    some, stages = prune.columns_of(axes.frame(FAMILIES)), Rule("s", VALIDITY, "why", lambda c, p, d: c.num_stages > 0)
    warps = Rule("warps", VALIDITY, "why", keep, families=("gemm_persistent",))
    found = prune.apply(some, SIZES[0], H200, (stages, warps), FAMILIES)
    assert asked == [1, 2]  # the second time about both numbers of warps
    assert [row.cut for row in found.funnel] == [0, 4] and len(found.kept) == 9 + 4


@pytest.mark.parametrize("axis", ["taken", "only", "forget", "rows", "first"])
def test_an_axis_may_have_any_name(axis: str) -> None:
    table = {"kind": {axis: (1, 2, 3), "other": (4, 5)}}
    some = prune.columns_of(workload_of("moe").frame(table))
    small = Rule("small", VALIDITY, "why", lambda c, p, d: getattr(c, axis) < 3)
    sum_is_6 = Rule("sum_is_6", VALIDITY, "why", lambda c, p, d: getattr(c, axis) + c.other == 6)
    for of in (None, table):
        assert prune.apply(some, SIZES[0], H200, (small, sum_is_6), of).kept.tolist() == [1, 2]


def test_axes_of_another_table_are_refused() -> None:
    with pytest.raises(ValueError, match="17 combinations, the table has 2 rows"):
        prune.apply(columns(config(), config()), SIZES[0], H200, (), FAMILIES)


def test_a_rule_need_not_take_rows_that_earlier_rules_reject() -> None:
    tried = np.array([10, 20, 30])
    small = Rule("small", VALIDITY, "why", lambda c, p, d: c.num_warps <= 4)
    known = Rule("known", VALIDITY, "a table", lambda c, p, d: tried[c.num_warps // 2] > 0)
    some = columns(config(num_warps=4), *[config(num_warps=8)] * 3)
    assert prune.apply(some, SIZES[0], H200, (small, known)).kept.tolist() == [0]


def test_a_rule_cannot_keep_a_value_for_others() -> None:
    """It would be that of the first of the rows that the next rule tells apart."""

    def keeps(c: Any, p: Any, d: Any) -> Any:
        c.tile = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N
        return c.tile > 0

    some = prune.columns_of(axes.frame(FAMILIES))
    with pytest.raises((UserError, AttributeError), match="tile"):
        prune.apply(some, SIZES[0], H200, (Rule("keeps", VALIDITY, "why", keeps),), FAMILIES)
