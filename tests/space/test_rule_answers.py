"""Answers of rules are kept for problems of which a rule reads the same, and for no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from rule_cases import thin_space
from samples import columns, config, device, problem

from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.space import prune
from gemm_tuner.space.rule import VALIDITY, Rule
from gemm_tuner.space.rule_answers import RuleAnswers

H200 = device("sm_90")
SIZES = [
    problem(512, 512, 512),
    problem(4096, 4096, 4096),
    replace(problem(17, 5120, 5120), layout_b=Layout.COL),
    replace(problem(512, 512, 512), layout_b=Layout.COL),
    problem(1, 4096, 4096),
    problem(333, 777, 1111),
    problem(512, 512, 512, "fp16"),
    replace(problem(4096, 4096, 4096), bias=True),
    problem(512, 512, 512),
]


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_a_batch_has_the_verdicts_of_each_size_alone(arch: str) -> None:
    candidates, answers = thin_space(arch), RuleAnswers()
    of = candidates.columns, device(arch), candidates.rules
    for size in SIZES:
        together = prune.apply(of[0], size, *of[1:], answers)
        alone = prune.apply(of[0], size, *of[1:])
        assert together.rejected_by.tolist() == alone.rejected_by.tolist()
        assert together.funnel == alone.funnel


@lru_cache
def large(size: GemmProblem) -> bool:
    return size.m > 1000


def in_a_helper(size: GemmProblem) -> bool:
    return isinstance(size, GemmProblem) and size.m > 1000


READINGS: dict[str, Callable[[GemmProblem], bool]] = {
    "a field": lambda p: p.m > 1000,
    "a property": lambda p: p.flops > 1e9,
    "after another": lambda p: p.layout_b == "row" and p.m > 1000,
    "in a function that remembers": large,
    "in a function that asks for the type": in_a_helper,
    "all fields": lambda p: vars(p)["m"] > 1000 if hasattr(p, "__dict__") else p.m > 1000,
    "its text": lambda p: "m=2048" in f"{p}",
    "a method": lambda p: p.to_dict()["m"] > 1000,
    "as a member": lambda p: p in {problem(2048, 2048, 2048)},
    "a copy": lambda p: replace(p, n=8).m > 1000,
}


@pytest.mark.parametrize("reading", READINGS)
def test_whatever_a_rule_reads_of_a_problem_counts(reading: str) -> None:
    def keep(c: Any, p: Any, d: Any) -> Any:
        return np.full(len(c.num_warps), READINGS[reading](p))

    answers, one = RuleAnswers(), Rule("one", VALIDITY, "why", keep)
    for m in (2048, 16, 2048, 16, 2048):
        kept = prune.apply(columns(config(), config(num_warps=8)), problem(m, 2048, 2048), H200, (one,), answers).kept
        assert len(kept) == (2 if m == 2048 else 0)


def test_a_rule_is_asked_twice_for_all_sizes_of_which_it_reads_the_same() -> None:
    asked: list[int] = []

    def keep(c: Any, p: Any, d: Any) -> Any:
        asked.append(len(c.num_warps))
        return (c.num_warps > 4) | (p.layout_a != "row")

    answers, one = RuleAnswers(), Rule("one", VALIDITY, "why", keep)
    some = columns(config(), config(num_warps=8))
    for m in (16, 32, 64, 128, 256):
        assert prune.apply(some, problem(m, 512, 512), H200, (one,), answers).kept.tolist() == [1]
    assert asked == [2, 2]


def test_a_rule_need_not_take_rows_that_earlier_rules_reject() -> None:
    tried = np.array([10, 20, 30])
    small = Rule("small", VALIDITY, "why", lambda c, p, d: c.num_warps <= 4)
    known = Rule("known", VALIDITY, "a table", lambda c, p, d: tried[c.num_warps // 2] > 0)
    answers, some = RuleAnswers(), columns(config(num_warps=4), *[config(num_warps=8)] * 3)
    for m in (16, 32, 64):
        assert prune.apply(some, problem(m, 512, 512), H200, (small, known), answers).kept.tolist() == [0]
