"""NaN and Inf come out where torch has them, in every family; what is not there spreads nowhere.

``make test`` gives each family half of the places of NaN and Inf, so that over all families each place meets every type
and activation; ``make test-all`` gives each family each place with every one of them.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from case_runner import Case, interpret
from designs import COL, ROW, VARIANTS, Variant, broken_templates, script_of, takes

from gemm_tuner.gemm.problem import GemmProblem

NAN, INF = float("nan"), float("inf")
# Every extent is no multiple of a tile; whole rows of 16 bytes where they are loaded by descriptor, but for M and K.
ODD = GemmProblem(19, 21, 23, "fp16", "fp16", "fp16", bias=True, beta=2.0)
WHOLE = GemmProblem(24, 24, 23, "fp16", "fp16", "fp16", COL, ROW, bias=True, beta=2.0)
FLAT = replace(ODD, n=7)


def poisons_of(problem: GemmProblem) -> list[tuple[tuple[str, int, float], ...]]:
    """In the last row and column, and next to the masked end of K, where a wrong mask would spread them."""
    m, n, k = problem.m, problem.n, problem.k

    def a(row: int, term: int, value: float) -> tuple[str, int, float]:
        return ("a", row * k + term if problem.layout_a == ROW else row + term * m, value)

    def b(term: int, column: int, value: float) -> tuple[str, int, float]:
        return ("b", term * n + column if problem.layout_b == ROW else term + column * k, value)

    return [
        (a(0, 0, NAN),),
        (a(m - 1, k - 1, INF), b(k - 1, n - 1, -INF)),
        (a(0, k - 1, INF), b(k - 1, 0, 0.0)),  # Inf * 0
        (a(3, 0, INF), a(3, 1, -INF)),
        (("bias", n - 1, NAN), ("bias", 0, INF)),
        (("c_in", m * n - 1, NAN), ("c_in", 0, -INF), ("c_in", n, INF)),
        (a(5, 0, 60000.0), a(5, 1, 60000.0), b(0, 2, 1.0), b(1, 2, 1.0)),  # beyond fp16
    ]


def problem_for(variant: Variant) -> GemmProblem:
    if variant.family == "gemv":
        return FLAT
    return WHOLE if variant.by_descriptor else ODD


def problems_for(variant: Variant) -> list[GemmProblem]:
    """bf16 too, and with each activation."""
    return [
        problem_for(variant),
        *(replace(problem_for(variant), activation=name) for name in ("relu", "gelu", "silu")),
        replace(problem_for(variant), dtype_a="bf16", dtype_b="bf16", dtype_c="bf16"),
    ]


@pytest.mark.parametrize("name", VARIANTS)
def test_nan_and_inf_come_out_in_turns(tmp_path: Path, name: str) -> None:
    """Every second place of a family. Over all families every place meets every problem."""
    variant, first = VARIANTS[name], list(VARIANTS).index(name)
    problems, cases = problems_for(variant), []
    for place in range(first % 2, len(poisons_of(problems[0])), 2):
        problem = problems[(first + place) % len(problems)]
        configs = [one for one in variant.configs if takes(variant, problem, one)]
        poison = poisons_of(problem)[place]
        script = script_of(tmp_path, variant, problem)
        cases.append(Case(script, configs[place // 2 % len(configs)], problem, poison=poison))
    assert len({case.config for case in cases}) > 1
    results = interpret(cases)
    assert [(c.key, c.poison, r.message) for c, r in zip(cases, results, strict=True) if not r.ok] == []


@pytest.mark.grid
@pytest.mark.parametrize("name", VARIANTS)
def test_nan_and_inf_come_out_where_torch_has_them(tmp_path: Path, name: str) -> None:
    variant, cases = VARIANTS[name], []
    every = problems_for(variant)
    for problem in every:
        configs = [one for one in variant.configs if takes(variant, problem, one)]
        script, turn = script_of(tmp_path, variant, problem), itertools.cycle(configs)
        for poison, _ in itertools.product(poisons_of(problem), range(2 if problem is every[0] else 1)):
            cases.append(Case(script, next(turn), problem, poison=poison))
    assert len({case.config for case in cases}) > 1
    results = interpret(cases)
    assert [(c.key, c.poison, r.message) for c, r in zip(cases, results, strict=True) if not r.ok] == []


@pytest.mark.parametrize("name", ["gemm_tile", "gemm_stream_k, descriptors", "gemv"])
def test_scales_that_are_nan_come_out(tmp_path: Path, name: str) -> None:
    variant, cases = VARIANTS[name], []
    base = replace(
        problem_for(variant), m=32, n=16 if variant.by_descriptor else 7, dtype_a="fp8_e4m3", dtype_b="fp8_e4m3"
    )
    for scaling in ("tensor", "row_col", *(() if name == "gemv" else ("block",))):
        problem = replace(base, scaling=scaling, activation="none", bias=False, beta=0.0)
        one = next(one for one in reversed(variant.configs) if takes(variant, problem, one))
        script = script_of(tmp_path, variant, problem)
        cases += [Case(script, one, problem, poison=((scale, 0, NAN),)) for scale in ("scale_a", "scale_b")]
    results = interpret(cases)
    assert [(c.key, c.poison, r.message) for c, r in zip(cases, results, strict=True) if not r.ok] == []


def test_an_infinity_that_the_kernel_loses_is_wrong(tmp_path: Path) -> None:
    variant, base = VARIANTS["gemm_tile"], GemmProblem(19, 21, 23, "fp16", "fp16", "fp16")
    templates = broken_templates(tmp_path, "_macros.j2", "offs_k[None, :] < k_left", "offs_k[None, :] < k_left - 1")
    script = script_of(tmp_path, variant, base, templates)
    (result,) = interpret([Case(script, variant.configs[0], base, poison=(("a", 2 * 23 - 1, INF),))])
    assert not result.ok and result.worst_element[0] == 1 and "inf times the bound" in result.message
