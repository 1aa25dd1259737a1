"""The exact operands show one product that a kernel leaves out, in every family and type.

``make test`` takes one or two types of each family, all types over all families; ``make test-all`` all of each.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from case_runner import Case, interpret
from designs import COL, LAYOUTS, ROW, TYPES, VARIANTS, is_legal, problem_of, script_of, takes
from dropping import dropping_templates, terms_to_drop

from gemm_tuner.gemm.problem import ACTIVATIONS, SCALINGS, GemmProblem

PLAIN = {"activation": "none", "alpha": 1.0, "beta": 0.0, "bias": False, "batch": 1, "scaling": "none"}


def case_for(folder: Path, templates: Path, name: str, kind: str, turn: int) -> Case | None:
    """One tile or two and a few blocks of K, by a configuration that shares K out where the family has one; scaling,
    layouts and epilogue in turns. None where the family does not take the type."""
    variant = VARIANTS[name]
    flat = variant.family == "gemv"
    for step in range(len(SCALINGS)):
        scaling = SCALINGS[(turn + step) % len(SCALINGS)]
        layouts = (ROW, COL) if scaling == "block" else LAYOUTS[turn % 4]
        epilogue = {"activation": ACTIVATIONS[turn // 2 % 4], "bias": turn % 2 > 0, "beta": -1.5 * (turn % 3 > 1)}
        for more in (epilogue, {}):
            row = {**PLAIN, "variant": name, "type": kind, "layouts": layouts, "scaling": scaling, **more}
            if is_legal(row):
                one = min(variant.configs, key=lambda one: (one.SPLIT_K == 1, one.BLOCK_SIZE_M, one.BLOCK_SIZE_K))
                k = 144 if scaling == "block" else 2 * one.BLOCK_SIZE_K * one.SPLIT_K + 16
                problem = problem_of(row, (1 if flat else 16, 16, k))
                if takes(variant, problem, one):
                    dropped = tuple(terms_to_drop(k, one.BLOCK_SIZE_K, one.SPLIT_K))
                    return Case(script_of(folder, variant, problem, templates), one, problem, dropped=dropped)
    return None


PARTS = len(TYPES)
# Each type for one variant by default, all for each with ``-m grid``.
GRID = [
    pytest.param(name, part, marks=[] if part % len(VARIANTS) == number else [pytest.mark.grid])
    for number, name in enumerate(VARIANTS)
    for part in range(PARTS)
]


@pytest.mark.parametrize(("name", "part"), GRID)
def test_every_term_that_is_left_out_shows(tmp_path: Path, name: str, part: int) -> None:
    """The first, the last, one in the middle and one at every boundary of blocks and slices of K."""
    templates = dropping_templates(tmp_path / "templates")
    made = {
        kind: case_for(tmp_path, templates, name, kind, turn) for turn, kind in enumerate(TYPES) if turn % PARTS == part
    }
    cases = [case for case in made.values() if case is not None]
    results = interpret(cases)
    assert {case.key: result.message for case, result in zip(cases, results, strict=True) if not result.ok} == {}
    fnuz = {kind for kind in made if kind.endswith("fnuz")}
    left_out = {kind for kind, case in made.items() if case is None}
    assert left_out == (fnuz if VARIANTS[name].by_descriptor else set())


def test_a_term_that_no_operand_holds_would_not_show(tmp_path: Path) -> None:
    """So a case is right because of what the comparison saw."""
    problem = replace(GemmProblem(16, 32, 64), dtype_c="fp32")
    variant = VARIANTS["gemm_tile"]
    script = script_of(tmp_path, variant, problem, dropping_templates(tmp_path / "templates"))
    (result,) = interpret([Case(script, variant.configs[0], problem, dropped=(5, 64, 63))])
    assert not result.ok and result.message == "not seen: [64]"


def test_terms_to_drop_are_at_every_boundary() -> None:
    assert terms_to_drop(100, 32, 3) == [0, 32, 33, 51, 64, 66, 96, 99]
    assert terms_to_drop(1, 32) == [0]
    assert len(terms_to_drop(32768, 64, 16)) == 512 + 2
    assert all(itertools.starmap(int.__lt__, itertools.pairwise(terms_to_drop(32768, 64, 16))))
