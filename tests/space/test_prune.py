"""Applying rules: the funnel adds up, the first rule that says no is on record, bad rule files are named."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_cases import thin_space
from samples import ARCHS, RULES, columns, config, device, problem

from gemm_tuner.core.errors import EXIT_INPUT, UserError
from gemm_tuner.gemm import axes
from gemm_tuner.space import prune, rule_answers
from gemm_tuner.space.rule import HEURISTIC, VALIDITY, Kind, Rule, rule

HEAD = "from gemm_tuner.space.rule import HEURISTIC, VALIDITY, rule\n"
SIZE = problem(4096, 4096, 4096)
H200 = device("sm_90")


def rule_text(name: str, kind: str, body: str, doc: str = "Why not.") -> str:
    return f'@rule({kind})\ndef {name}(c, p, d):\n    """{doc}"""\n    return {body}\n'


def folder(tmp_path: Path, validity: str = "", heuristics: str = "", families: str = "") -> Path:
    (tmp_path / "validity.py").write_text(HEAD + (validity or rule_text("one", "VALIDITY", "c.num_warps > 0")))
    (tmp_path / "heuristics.py").write_text(HEAD + (heuristics or rule_text("two", "HEURISTIC", "c.num_warps < 8")))
    (tmp_path / "families.py").write_text(HEAD + families)
    return tmp_path


def refusal(rules_dir: Path) -> str:
    with pytest.raises(UserError) as caught:
        prune.load_rules(rules_dir)
    assert caught.value.exit_status == EXIT_INPUT
    return caught.value.one_line()


@pytest.mark.parametrize("arch", ARCHS)
def test_the_funnel_adds_up_and_agrees_with_the_record(arch: str) -> None:
    candidates = thin_space(arch)
    pruned = prune.apply(candidates.columns, SIZE, device(arch), candidates.rules)
    remain = len(candidates.configs)
    for row in pruned.funnel:
        remain -= row.cut
        assert row.remain == remain
    assert remain == len(pruned.kept)
    counted = Counter(pruned.rejected_by.tolist())
    assert counted.pop("") == len(pruned.kept)
    assert counted == {row.rule: row.cut for row in pruned.funnel if row.cut}
    assert (pruned.rejected_by[pruned.kept] == "").all()
    backend = device(arch).target.backend
    asked = prune.in_order(candidates.rules)
    assert [row.rule for row in pruned.funnel] == [r.name for r in asked if r.backend in ("", backend)]


def first_that_says_no(some: Any, rules: tuple[Rule, ...], arch: str) -> list[str]:
    """Of every configuration, by asking every rule about all of them."""
    verdicts = np.full(len(some.family), "", dtype=object)
    for one in prune.in_order(rules):
        if one.backend not in ("", device(arch).target.backend):
            continue
        mine = np.isin(np.asarray(some.family), one.families) if one.families else True
        verdicts[(verdicts == "") & mine & ~rule_answers.evaluate(one, some, SIZE, device(arch))] = one.name
    return list(verdicts)


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
@pytest.mark.parametrize("order", ["one family after another", "interleaved", "one row of a family apart"])
def test_the_order_of_rows_changes_no_verdict(arch: str, order: str) -> None:
    candidates = thin_space(arch)
    places = np.arange(len(candidates.configs))
    if order == "interleaved":
        places = np.random.default_rng(0).permutation(places)
    elif order == "one row of a family apart":
        places = np.roll(places, 1)
    some = prune.columns_of(candidates.configs.iloc[places])
    pruned, before = (prune.apply(each, SIZE, device(arch), candidates.rules) for each in (some, candidates.columns))
    assert pruned.rejected_by.tolist() == before.rejected_by[places].tolist()
    assert pruned.rejected_by.tolist() == first_that_says_no(some, candidates.rules, arch)
    assert pruned.kept.tolist() == np.flatnonzero(pruned.rejected_by == "").tolist()
    assert pruned.funnel == before.funnel


def test_columns_are_the_same_with_axes_as_without() -> None:
    tile = {"BLOCK_SIZE_M": (16, 64), "num_warps": (4, 8)}
    families = {"gemm_tile": tile, "gemm_cute": {"BLOCK_SIZE_M": (64, 128, 32), "CLUSTER_M": (2,)}}
    frame = axes.frame(families)
    with_axes, without = prune.columns_of(frame, families), prune.columns_of(frame)
    assert with_axes.largest == without.largest
    assert [with_axes.largest[axis] for axis in ("BLOCK_SIZE_M", "num_warps", "CLUSTER_M")] == [128, 8, 2]
    assert list(with_axes.family) == list(without.family) == frame["family"].tolist()
    assert with_axes.families == without.families == {*families}


def test_a_rule_of_one_family_sees_no_row_of_another() -> None:
    seen: list[list[str]] = []

    def look(c: Any, p: Any, d: Any) -> Any:
        seen.append(list(c.family))
        return c.num_warps < 8

    of_one = Rule("of_one", HEURISTIC, "", look, families=("gemm_tile",))
    tile, other = config(), config(family="gemm_persistent", num_warps=8)
    pruned = prune.apply(columns(tile, other, replace(tile, num_warps=8), other), SIZE, H200, (of_one,))
    assert seen == [["gemm_tile", "gemm_tile"]]
    assert pruned.rejected_by.tolist() == ["", "", "of_one", ""]


def test_the_first_rule_that_says_no_is_recorded() -> None:
    @rule(VALIDITY)
    def few_warps(c, p, d):  # type: ignore[no-untyped-def]
        """Eight."""
        return c.num_warps < 8

    @rule(HEURISTIC)
    def few_stages(c, p, d):  # type: ignore[no-untyped-def]
        """Four."""
        return c.num_stages < 4

    some = columns(config(), config(num_warps=8), config(num_stages=4), config(num_warps=8, num_stages=4))
    pruned = prune.apply(some, SIZE, H200, (few_warps, few_stages))
    assert pruned.rejected_by.tolist() == ["", "few_warps", "few_stages", "few_warps"]
    assert [(row.rule, row.kind, row.why, row.cut, row.remain) for row in pruned.funnel] == [
        ("few_warps", Kind.VALIDITY, "Eight.", 2, 2),
        ("few_stages", Kind.HEURISTIC, "Four.", 1, 1),
    ]
    turned = prune.apply(some, SIZE, H200, (few_stages, few_warps))
    assert turned.rejected_by.tolist() == ["", "few_warps", "few_stages", "few_stages"]
    assert turned.kept.tolist() == pruned.kept.tolist() == [0]


def test_a_rule_on_whole_families_is_asked_before_the_others() -> None:
    """And these see nothing of a family that it cuts, which the report counts as its."""
    seen: list[list[str]] = []

    @rule(VALIDITY)
    def few_warps(c, p, d):  # type: ignore[no-untyped-def]
        """Eight."""
        seen.append(list(c.family))
        return c.num_warps < 8

    @rule(HEURISTIC, families=("gemm_packed",), whole_families=True)
    def small(c, p, d):  # type: ignore[no-untyped-def]
        """Large."""
        return p.m < 4096

    some = columns(config(num_warps=8), config(family="gemm_packed", num_warps=8), config(family="gemm_packed"))
    pruned = prune.apply(some, SIZE, H200, (few_warps, small))
    assert pruned.rejected_by.tolist() == ["few_warps", "small", "small"]
    assert [(row.rule, row.cut, row.remain) for row in pruned.funnel] == [("small", 2, 1), ("few_warps", 1, 0)]
    assert seen == [["gemm_tile"]]
    said = prune.nothing_left(pruned, SIZE, some_are_valid=True).one_line()
    assert "the last 1 were cut by few_warps" in said and "--no_heuristics" in said and "--space" in said
    kept = prune.apply(some, replace(SIZE, m=2048), H200, (few_warps, small))
    assert kept.rejected_by.tolist() == ["few_warps", "few_warps", ""]


def test_a_rule_of_another_family_or_backend_cuts_nothing() -> None:
    def nothing(c, p, d):  # type: ignore[no-untyped-def]
        return c.num_warps < 0

    other = (
        Rule("other_family", VALIDITY, "", nothing, families=("gemm_stream",)),
        Rule("other_backend", VALIDITY, "", nothing, backend="hip"),
    )
    pruned = prune.apply(columns(config()), SIZE, H200, other)
    assert pruned.kept.tolist() == [0]
    assert [row.rule for row in pruned.funnel] == ["other_family"]


def test_a_rule_may_give_one_answer_for_all() -> None:
    size_only = Rule("size_only", VALIDITY, "", lambda c, p, d: p.m > 1)
    pruned = prune.apply(columns(config(), config(num_warps=8)), SIZE, H200, (size_only,))
    assert pruned.kept.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("c.BLOCK_M > 1", ["fails on 4096x4096x4096", "AttributeError", "BLOCK_M"]),
        ("None", ["gives object"]),
        ("c.num_warps", ["gives int64"]),
        ("(c.num_warps > 0)[:1]", ["of shape (1,)"]),
    ],
)
def test_a_rule_that_gives_no_answer_is_named(tmp_path: Path, body: str, words: list[str]) -> None:
    rules = prune.load_rules(folder(tmp_path, heuristics=rule_text("mine", "HEURISTIC", body)))
    with pytest.raises(UserError) as caught:
        prune.apply(columns(config(), config(num_warps=8)), SIZE, H200, rules)
    message = caught.value.one_line()
    assert [word for word in [str(tmp_path / "heuristics.py"), "rule mine", *words] if word not in message] == []


def test_rules_of_ones_own(tmp_path: Path) -> None:
    three = rule_text("three", "HEURISTIC", "c.num_stages < 4")
    rules = prune.load_rules(folder(tmp_path, families=three))
    kinds = [("one", Kind.VALIDITY), ("two", Kind.HEURISTIC), ("three", Kind.HEURISTIC)]
    assert [(r.name, r.kind) for r in rules] == kinds
    pruned = prune.apply(columns(config(), config(num_warps=8), config(num_stages=4)), SIZE, H200, rules)
    assert pruned.rejected_by.tolist() == ["", "two", "three"]
    assert [r.name for r in prune.load_rules(tmp_path, heuristics=False)] == ["one"]


def test_without_heuristics_only_the_heuristics_go() -> None:
    everything, valid = prune.load_rules(RULES), prune.load_rules(RULES, heuristics=False)
    assert [r.name for r in valid] == [r.name for r in everything if r.kind == Kind.VALIDITY]
    some, all_of_them = thin_space("sm_90"), thin_space("sm_90", heuristics=False)
    strict = prune.apply(some.columns, SIZE, H200, some.rules)
    loose = prune.apply(all_of_them.columns, SIZE, H200, all_of_them.rules)
    assert set(strict.kept) < set(loose.kept)
    cut_as_invalid = np.isin(strict.rejected_by, [r.name for r in valid])
    assert (loose.rejected_by[cut_as_invalid] == strict.rejected_by[cut_as_invalid]).all()


def test_bad_rule_folders(tmp_path: Path) -> None:
    assert "validity.py: is missing" in refusal(tmp_path / "nowhere")
    assert "validity.py: is missing" in refusal(tmp_path)
    (tmp_path / "validity.py").write_text("")
    assert "heuristics.py: is missing" in refusal(tmp_path)
    (tmp_path / "heuristics.py").write_text("")
    assert "families.py: is missing" in refusal(tmp_path)
    (tmp_path / "families.py").write_text("")
    assert f"{tmp_path}: holds no rules" in refusal(tmp_path)


def test_validity_rules_of_several_files(tmp_path: Path) -> None:
    rules_dir = folder(tmp_path)
    (rules_dir / "validity_mine.py").write_text(HEAD + rule_text("three", "VALIDITY", "c.num_stages > 2"))
    assert [rule.name for rule in prune.load_rules(rules_dir, heuristics=False)] == ["one", "three"]
    assert [rule.name for rule in prune.load_rules(rules_dir)] == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n", ["SyntaxError", "line 2"]),
        ("import gemm_tuner.no_such_module\n", ["ModuleNotFoundError", "no_such_module"]),
        ("@rule(VALIDITY)\ndef silent(c, p, d):\n    return True\n", ["silent", "docstring"]),
    ],
)
def test_a_rule_file_that_does_not_load(tmp_path: Path, text: str, words: list[str]) -> None:
    message = refusal(folder(tmp_path, validity=text))
    assert [w for w in [str(tmp_path / "validity.py"), "does not load", *words] if w not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("file", ["heuristics", "families"])
def test_two_rules_of_one_name(tmp_path: Path, file: str) -> None:
    twin = rule_text("one", "HEURISTIC", "c.num_warps < 8")
    assert "two rules are called one" in refusal(folder(tmp_path, **{file: twin}))


@pytest.mark.parametrize(("kind", "hint"), [("VALIDITY", "--space"), ("HEURISTIC", "--no_heuristics")])
def test_an_empty_space_names_the_rule_that_cut_the_last(tmp_path: Path, kind: str, hint: str) -> None:
    text = rule_text("few_warps", kind, "c.num_warps < 8") + rule_text("none", kind, "c.num_warps < 4", "None is.")
    last = rule_text("idle", kind, "c.num_warps < 2")
    parts = {"validity": text + last} if kind == "VALIDITY" else {"heuristics": text + last}
    mine = [r for r in prune.load_rules(folder(tmp_path, **parts)) if r.name in ("few_warps", "none", "idle")]
    pruned = prune.apply(columns(config(), config(num_warps=8)), SIZE, H200, tuple(mine))
    message = prune.nothing_left(pruned, SIZE, some_are_valid=kind == "HEURISTIC").one_line()
    assert f"{SIZE.key}: no configuration is left; the last 1 were cut by none: None is; " in message
    assert hint in message
