"""Exact operands of a fused MoE layer show one product that a kernel leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gemm_tuner.core.records import Verdict
from gemm_tuner.moe import check, operands
from gemm_tuner.moe.cases import Case
from gemm_tuner.moe.exact_operands import difference, made_exact
from gemm_tuner.moe.launch import DOWN, PARTS, UP, extent
from gemm_tuner.moe.operands import MoeOperands
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.reference import references

BF16 = MoeProblem("vllm", 9, 4, 128, 384, 2, seeds=1)
FP8 = replace(BF16, dtype="fp8_w8a8", scaling="tensor")
GROUPED = replace(BF16, dtype="int4_w4a16", scaling="group", block_shape=(0, 64))
LAYERS = {
    "bf16": BF16,
    "fp16, bias": replace(BF16, dtype="fp16", out="fp16", bias=True),
    "fp8, a scale a tensor": FP8,
    "fp8, a scale a row": replace(FP8, scaling="channel"),
    "fp8, a scale a block": replace(FP8, scaling="block", block_shape=(64, 32)),
    "8 bits": replace(BF16, dtype="int8_w8a16", scaling="channel"),
    "8 bits in groups": replace(GROUPED, dtype="int8_w8a16"),
    "4 bits in groups, zero points": replace(GROUPED, zero_points=True),
    "4 bits in groups, fp16": replace(GROUPED, out="fp16"),
    "experts of other ranks": replace(BF16, global_E=8),
}


def exact(problem: MoeProblem) -> MoeOperands:
    return made_exact(operands.make(problem, 0, "cpu")[0], 1)


def without_terms(given: MoeOperands, part: str, terms: list[int]) -> MoeOperands:
    one = given.gemms[part]
    a = one.a.float()
    a[:, terms] = 0
    return replace(given, gemms={**given.gemms, part: replace(one, a=a.to(one.a.dtype))})


def by_row(given: MoeOperands, part: str) -> Any:
    """C of a GEMM as a kernel writes it that sums in fp32."""
    c = torch.zeros_like(given.gemms[part].c)
    for rows, values, _ in references(given, part, wide=False):
        assert torch.equal(values, values.float().double()), "no fp32 holds the sum"
        c[rows] = values.to(c.dtype)
    return c


@pytest.mark.parametrize("name", LAYERS)
def test_every_term_that_is_left_out_shows(name: str) -> None:
    given = exact(LAYERS[name])
    for part in PARTS:
        whole, last = by_row(given, part), extent(given.problem, part).depth - 1
        for rows, expected, _ in references(given, part, wide=False):
            assert difference(expected, whole[rows]) is None
        for term in (0, last // 2, last):
            lacks = by_row(without_terms(given, part, [term]), part)
            found = [difference(expected, lacks[rows]) for rows, expected, _ in references(given, part, wide=False)]
            assert all(found), f"term {term} of the {part} GEMM"


def test_random_operands_hide_them_in_a_long_sum_of_fp8() -> None:
    """Which is what the exact ones are for."""
    layer = replace(FP8, M=2, E=1, topk=1, N=16, K=7168)
    for made, shows in ((operands.make(layer, 0, "cpu")[0], False), (exact(layer), True)):
        ((rows, expected, bound),) = references(made, UP, wide=False)
        ((_, lacks, _),) = references(without_terms(made, UP, [5]), UP, wide=False)
        found = lacks.to(torch.bfloat16)
        is_wrong = difference(expected, found) is not None if shows else bool(((found - expected).abs() > bound).any())
        assert len(rows) == 2 and is_wrong == shows


class Kernel:
    """Writes what it is told into the results."""

    def __init__(self, does: Callable[[], None]) -> None:
        self._does = does

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda: self._does()


@pytest.mark.parametrize("wrong", [UP, DOWN, ""])
def test_a_configuration_that_leaves_out_a_term_is_wrong(wrong: str) -> None:
    given = exact(BF16)
    results = {part: torch.empty_like(given.gemms[part].c) for part in PARTS}

    def multiply() -> None:
        for part in PARTS:
            results[part].copy_(by_row(without_terms(given, part, [7] if part == wrong else []), part))

    launches: list[Any] = [("both", Kernel(multiply), (1,), (), {})]
    call = check.Call({"BLOCK_SIZE_M": 16}, given, given, launches, results, slice(None))
    right = Verdict(BF16, "it", True, 0.5, 0.25)
    verdict = check.check_exact(call, right, Case(given))
    if wrong:
        assert not verdict.ok and f"the {wrong} GEMM is wrong in row" in verdict.message
        assert verdict.error_over_bound == right.error_over_bound
    else:
        assert verdict == right


@pytest.mark.parametrize("left_out", [[], [5]], ids=["right", "a term is left out"])
def test_a_check_of_a_long_sum_finds_what_random_operands_hide(left_out: list[int]) -> None:
    layer = replace(FP8, M=2, E=1, topk=1, N=16, K=7168)
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}

    def launches(script: Any, config: Any, problem: MoeProblem, given: MoeOperands, *_: Any) -> list[Any]:
        def multiply() -> None:
            for part in PARTS:
                lacking = without_terms(given, part, left_out if part == UP else [])
                for rows, values, _ in references(lacking, part, wide=given.wide):
                    given.gemms[part].c[rows] = values.float()

        return [("both", Kernel(multiply), (1,), (), {})]

    workload, script = SimpleNamespace(launches=launches), SimpleNamespace(CONFIGS={"it": config})
    verdict = check.check(workload, script, layer, "it", 0, "cpu")  # type: ignore[arg-type]
    assert verdict.ok == (not left_out) and verdict.error_over_bound < 1
    assert ("exact operands" in verdict.message) == bool(left_out)
