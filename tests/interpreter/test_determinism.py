"""Families that share out K give the same bits whichever program finishes last, and leave their locks as they were.

``make test`` calls two configurations of each family three times; ``make test-all`` all of them ten times too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from designs import COL, ROW, VARIANTS, Variant, broken_templates, script_of
from order_runner import Calls, call_often

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem

# Odd where the variant takes it; several tiles, and several blocks of K for each slice or program.
SHARED = GemmProblem(37, 29, 139, "fp16", "fp16", "fp32", bias=True)
WHOLE = GemmProblem(40, 32, 139, "fp16", "fp16", "fp32", COL, ROW, bias=True)
SHARING = (
    "gemm_tile", "gemm_split_k, pointers", "gemm_split_k, descriptors",
    "gemm_stream_k, pointers", "gemm_stream_k, descriptors", "gemv",
)  # fmt: skip


def sharing_configs(variant: Variant) -> list[KernelConfig]:
    """Those that sum one element of C in several programs."""
    return [one for one in variant.configs if one.SPLIT_K > 1 or one.family == "gemm_stream_k"]


def problem_for(variant: Variant, one: KernelConfig) -> GemmProblem:
    if variant.family == "gemv":
        return replace(SHARED, n=min(one.BLOCK_SIZE_M, 3))
    return WHOLE if variant.by_descriptor else SHARED


@pytest.mark.parametrize(("count", "most"), [(3, 2), pytest.param(10, 100, marks=pytest.mark.grid)])
@pytest.mark.parametrize("name", SHARING)
def test_calls_in_other_orders_of_programs_give_the_same_bits(tmp_path: Path, name: str, count: int, most: int) -> None:
    """All with one scratch, whose partial sums are what the call before left there."""
    variant = VARIANTS[name]
    problems = [(problem_for(variant, one), one) for one in sharing_configs(variant)[:most]]
    calls = [Calls(script_of(tmp_path, variant, problem), one, problem, count) for problem, one in problems]
    runs = call_often(calls)
    for one, outcome in zip(calls, runs, strict=True):
        assert outcome.message == "", f"{one.config.name}: {outcome.message}"
        assert len(outcome.digests) == count and len(set(outcome.digests)) == 1, one.config.name
    assert max(len(set(outcome.last_programs)) for outcome in runs) > 2  # the orders did differ
    assert len({outcome.digests for outcome in runs}) > 1, "no configuration changed the order of the sum"


@pytest.mark.parametrize("most", [2, pytest.param(100, marks=pytest.mark.grid)])
@pytest.mark.parametrize("name", ["gemm_persistent, pointers", "gemm_persistent, descriptors"])
def test_tiles_do_not_depend_on_the_order_of_programs(tmp_path: Path, name: str, most: int) -> None:
    variant = VARIANTS[name]
    problem = WHOLE if variant.by_descriptor else SHARED
    calls = [Calls(script_of(tmp_path, variant, problem), one, problem, count=3) for one in variant.configs[-most:]]
    for one, outcome in zip(calls, call_often(calls), strict=True):
        assert outcome.message == "" and len(set(outcome.digests)) == 1, one.config.name


IN_ORDER_OF_ARRIVAL = {
    "gemm_split_k, pointers": ("gemm_split_k.py.j2",
        "tile * SPLIT_K + slice_k", "tile * SPLIT_K + tl.load(locks_ptr + tile)"),
    "gemv": ("gemv.py.j2",
        "partial_ptr + pid_k * rows", "partial_ptr + tl.load(locks_ptr + pid_n) * rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_ORDER_OF_ARRIVAL)
def test_a_sum_in_the_order_of_arrival_is_right_and_found_out(tmp_path: Path, name: str) -> None:
    """So the orders above are different enough to show in the bits."""
    variant = VARIANTS[name]
    one = next(one for one in variant.configs if one.SPLIT_K > 2)
    problem = problem_for(variant, one)
    templates = broken_templates(tmp_path, *IN_ORDER_OF_ARRIVAL[name])
    (outcome,) = call_often([Calls(script_of(tmp_path, variant, problem, templates), one, problem)])
    assert outcome.message == "" and len(set(outcome.digests)) > 1


@pytest.mark.parametrize("name", ["gemm_split_k, pointers", "gemm_stream_k, descriptors", "gemv"])
def test_locks_that_are_left_behind_are_found_out(tmp_path: Path, name: str) -> None:
    variant = VARIANTS[name]
    one = sharing_configs(variant)[0]
    problem = problem_for(variant, one)
    lock = {"gemm_split_k": "tile", "gemm_stream_k": "shared", "gemv": "pid_n"}[variant.family]
    fault = (f"{variant.family}.py.j2", f"tl.store(locks_ptr + {lock}, 0)", f"tl.store(locks_ptr + {lock}, 1)")
    script = script_of(tmp_path, variant, problem, broken_templates(tmp_path, *fault))
    with pytest.raises(AssertionError, match="left locks behind in call 0"):
        call_often([Calls(script, one, problem)])
