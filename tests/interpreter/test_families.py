"""Every family with every type, layout, scaling and epilogue that it takes, two by two, over odd and even sizes.

``make test`` runs a sample that has every legal pair of family, layouts, scaling and epilogue, and every type;
``make test-all`` a design that has every pair, of types too.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from case_runner import Case, interpret
from designs import FACTORS, TYPES, VARIANTS, Pair, Row, Sizing, covering, is_legal, legal_pairs, pairs_of, rows_with

from gemm_tuner.gemm.problem import Layout

PARTS = 3
# Three configurations compute no other layouts, which few rows have by chance.
TILES_OF_EVERY_8TH_ROW: Pair = (("variant", "gemm_packed, descriptors"), ("layouts", (Layout.ROW, Layout.COL)))
Design = list[tuple[Row, Case]]


@pytest.fixture(scope="module")
def design(tmp_path_factory: pytest.TempPathFactory) -> Design:
    sizing = Sizing(tmp_path_factory.mktemp("scripts"))
    rng = random.Random(1)
    of_one_layout = (row for row in rows_with(TILES_OF_EVERY_8TH_ROW, rng) if row["scaling"] != "block")
    rows = [*covering(rng, legal_pairs()), *itertools.islice(of_one_layout, 3)]
    return [(row, sizing.case(row)) for row in rows]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Design:
    sizing = Sizing(tmp_path_factory.mktemp("sample"))
    return [(row, sizing.case(row)) for row in covering(random.Random(1), sampled_pairs())]


def sampled_pairs() -> set[Pair]:
    """Those of two features other than the type, and one of each type."""
    return {
        (one, other)
        for one, other in legal_pairs()
        if "type" not in (one[0], other[0]) or (one[0], other) == ("type", ("batch", 1))
    }


def test_a_sample_of_features_is_right(sample: Design) -> None:
    assert set().union(*(pairs_of(row) for row, _ in sample)) >= sampled_pairs()
    assert {row["type"] for row, _ in sample} == set(TYPES)
    cases = [case for _, case in sample]
    results = interpret(cases)
    assert {case.key: result.message for case, result in zip(cases, results, strict=True) if not result.ok} == {}


@pytest.mark.grid
@pytest.mark.parametrize("part", range(PARTS))
def test_all_features_are_right_two_by_two(design: Design, tmp_path: Path, part: int) -> None:
    cases = [case for _, case in design][part::PARTS]
    results = interpret(cases)
    assert {case.key: result.message for case, result in zip(cases, results, strict=True) if not result.ok} == {}


@pytest.mark.grid
def test_the_design_meets_every_legal_pair(design: Design) -> None:
    """And no other; the cases are of the rows' problems, and meet every configuration."""
    assert all(is_legal(row) for row, _ in design)
    assert set().union(*(pairs_of(row) for row, _ in design)) == legal_pairs()
    for row, case in design:
        problem = case.problem
        features = (problem.scaling, problem.activation, problem.alpha, problem.beta, problem.bias, problem.batch)
        assert features == tuple(row[f] for f in ("scaling", "activation", "alpha", "beta", "bias", "batch"))
        assert TYPES[row["type"]] == (problem.dtype_a, problem.dtype_b, problem.dtype_c, problem.precision)
        assert case.config in VARIANTS[row["variant"]].configs
    used = {case.config for _, case in design}
    assert [one for variant in VARIANTS.values() for one in variant.configs if one not in used] == []


def test_what_a_family_does_not_take_is_in_no_pair() -> None:
    pairs = legal_pairs()
    assert (("variant", "gemm_tile"), ("batch", 3)) in pairs
    assert not [pair for pair in pairs if pair[0] == ("variant", "gemv") and pair[1] == ("scaling", "block")]
    assert not [pair for pair in pairs if ("type", "bf16") in pair and ("scaling", "tensor") in pair]
    assert not [pair for pair in pairs if ("type", "int8") in pair and ("activation", "relu") in pair]
    assert {pair[0][0] for pair in pairs} | {pair[1][0] for pair in pairs} == set(FACTORS)
