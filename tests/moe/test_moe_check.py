"""The check of a fused MoE layer: what is compared, and what it says. Imports torch, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_moe_exact_operands import BF16, LAYERS, Kernel, by_row

from gemm_tuner.core.records import Verdict
from gemm_tuner.moe import check, operands, reference
from gemm_tuner.moe.exact_operands import made_exact
from gemm_tuner.moe.launch import DOWN, PARTS, UP
from gemm_tuner.moe.reference import experts_of_rows, in_groups, references


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("part", PARTS)
def test_the_verdict_is_the_same_however_many_experts_are_compared_at_a_time(
    monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    """The error is 400 times the bound in one row, 300 times in two others."""
    given = operands.make(LAYERS[name], 0, "cpu")[0]
    c, local = by_row_of(given, part), (experts_of_rows(given) < given.problem.E).nonzero().flatten().tolist()
    for row, times in ((local[0], 300), (local[1], 400), (local[-1], 300)):
        bound = {int(one): limit for rows, _, limits in references(given, part, wide=False)
                 for one, limit in zip(rows, limits, strict=True)}[row]  # fmt: skip
        c[row, 5] += times * float(bound[5])
    found = []
    for elements in (1, 3 * c.shape[1], 2**24):
        monkeypatch.setattr(reference, "GROUP_ELEMENTS", elements)
        found.append(check.compared(given.problem, given, part, "it", c, wide=False))
    assert found[0] == found[1] == found[2]
    assert not found[0].ok and found[0].worst_element == (local[1], 5) and found[0].error_over_bound > 350


def by_row_of(given: Any, part: str) -> Any:
    """C as a kernel writes it that makes no error, in fp32."""
    c = torch.zeros(given.gemms[part].c.shape)
    for rows, values, _ in references(given, part, wide=False):
        c[rows] = values.float()
    return c


def test_groups_have_all_rows_in_order() -> None:
    given = operands.make(BF16, 0, "cpu")[0]
    each, columns = [rows for rows, *_ in references(given, UP, wide=False)], given.gemms[UP].c.shape[1]
    (together,) = in_groups(references(given, UP, wide=False))
    assert torch.equal(together[0], torch.cat(each))
    assert together[1].shape == together[2].shape == (BF16.rows, columns)


@pytest.mark.parametrize("call", [2, 3])
@pytest.mark.parametrize("part", PARTS)
def test_a_call_that_gives_other_bits_is_named(call: int, part: str) -> None:
    given = made_exact(operands.make(BF16, 0, "cpu")[0], 1)
    results = {one: torch.empty_like(given.gemms[one].c) for one in PARTS}
    right, calls = {one: by_row(given, one) for one in PARTS}, 0

    def multiply() -> None:
        nonlocal calls
        calls += 1
        for one in PARTS:
            results[one].copy_(right[one])
        if calls >= call:
            results[part][3, 4] = -0.0 if calls > call else math.nan
            results[DOWN][5, 6] = math.nan

    ahead = checked_call(given, results, multiply)
    first = {one: c.clone() for one, c in ahead.run().items()}
    verdict = check.repeated(ahead, first, Verdict(BF16, "it", True, 0.5, 0.25))
    assert not verdict.ok and not verdict.stable and calls == check.REPEATS
    assert verdict.message == f"call {call} of the {part} GEMM gave other bits"


def test_calls_that_give_the_same_bits_keep_their_verdict() -> None:
    given = operands.make(BF16, 0, "cpu")[0]
    results = {one: torch.empty_like(given.gemms[one].c) for one in PARTS}
    ahead = checked_call(given, results, lambda: [one.fill_(2.0) for one in results.values()])
    first, right = {one: c.clone() for one, c in ahead.run().items()}, Verdict(BF16, "it", True, 0.5, 0.25)
    assert check.repeated(ahead, first, right) is right


def checked_call(given: Any, results: dict[str, Any], does: Callable[[], Any]) -> check.Call:
    launches: list[Any] = [("both", Kernel(does), (1,), (), {})]
    return check.Call({"BLOCK_SIZE_M": 16}, given, given, launches, results, slice(None))
