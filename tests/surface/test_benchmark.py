"""gt.benchmark: finals of functions as they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from said_times import Said

import gemm_tuner as gt
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status, Verified


def test_functions_are_sorted_and_equal_ones_tie() -> None:
    clock = Said()

    def slow(x: Any) -> Any:
        clock.us = 20.0
        return x + 1

    def fast(x: Any) -> Any:
        clock.us = 10.0
        return x + 1

    x = np.zeros(4)
    found = gt.benchmark([slow, fast, fast], [x], clock=clock)
    assert [row.name for row in found.rows] == ["fast", "fast_2", "slow"]
    assert found.ties == {"fast", "fast_2"} and {row.verified for row in found.rows} == {Verified.AGREED}
    assert all(row.finalist for row in found.rows) and found.kernel is fast
    first, second, third = str(found).splitlines()[1:]
    assert "10.00 us" in first and "fast" in first and "tie" in first and "tie" in second
    assert "20.00 us" in third and "slow" in third and "tie" not in third
    named = gt.benchmark({"ours": fast, "theirs": slow}, lambda: [x], clock=clock, reference=lambda x: x + 2)
    assert {row.status for row in named.rows} == {Status.WRONG}
    with pytest.raises(UserError, match="no functions"):
        gt.benchmark([])


def test_inputs_are_made_for_each_function_and_restored_before_each_call() -> None:
    made: list[Any] = []

    def inputs() -> list[Any]:
        made.append(np.ones(2))
        return [made[-1]]

    def double(x: Any) -> Any:
        x *= 2
        return x.copy()

    def add(x: Any) -> Any:
        x += x
        return x.copy()

    found = gt.benchmark([double, add], inputs, restore=lambda x: x.fill(1), reference=lambda x: 2 * np.ones(2))
    assert len(made) == 2 and {row.verified for row in found.rows} == {Verified.TRUE}
    assert all(np.array_equal(one, [2, 2]) for one in made)
