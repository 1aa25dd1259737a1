"""Tables on the terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from screens import TUNED, WIDTHS, Screen, choices_of

from gemm_tuner.core.choice import Choice, ServedChoice
from gemm_tuner.core.labels import labels
from gemm_tuner.core.records import Verdict, Verified
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.short_forms import short_config
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.pipeline import show
from gemm_tuner.space.prune import FunnelRow
from gemm_tuner.space.rule import Kind

SIZE = GemmProblem(48, 16, 16)


def results_of(choices: list[Choice], width: int, failures: dict[GemmProblem, str] | None = None) -> list[str]:
    screen, failed = Screen(width), failures or {}
    problems = [choice.problem for choice in choices] + list(failed)
    show.results(screen.console, "Results", problems, {choice.problem: choice for choice in choices}, failed)
    return screen.lines


@pytest.mark.parametrize("source", ["measured", "predicted"])
@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
@pytest.mark.parametrize("width", WIDTHS)
def test_real_results_fit_the_terminal_and_lose_nothing_that_matters(path: Path, width: int, source: str) -> None:
    choices = choices_of(path, source)
    lines = results_of(choices, width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    named = labels([choice.problem for choice in choices])
    for choice in choices:
        for text in (named.of[choice.problem], f"{choice.median_us:.2f}", short_config(choice.config.name)):
            assert all(word in words for word in text.split()), text
    assert all(word in " ".join(lines) for word in named.common.split())
    if width >= 80:
        for choice in choices:
            row = [named.of[choice.problem], short_config(choice.config.name)]
            assert any(all(text in line for text in row) for line in lines), row


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_piped_results_are_whole_and_hold_a_line_a_size(path: Path) -> None:
    choices = choices_of(path)
    lines = results_of(choices, 0)
    for choice in choices:
        (line,) = (line for line in lines if line.startswith(choice.problem.key + " "))
        cells = line.split()
        assert {choice.config.name, f"{choice.median_us:.2f}", f"{choice.tflops:.1f}"} <= set(cells)
        assert not choice.vendor_ratio or f"{choice.vendor_ratio:.3f}" in cells


def test_columns_without_a_value_are_not_shown() -> None:
    choices = choices_of(TUNED[0], "predicted")
    for width in (0, 60, 200):
        text = "\n".join(results_of(choices, width))
        assert "TFLOP/s" not in text and "roof" not in text and "torch.mm" not in text
        assert " - " not in text and " nan" not in text
    assert "TFLOP/s" in "\n".join(results_of(choices_of(TUNED[0]), 120))


@pytest.mark.parametrize("width", [0, 60])
def test_a_size_without_a_configuration_says_why(width: int) -> None:
    reason = "no configuration has a time: 118 missing_in_trace, 2 compile_error and some more words"
    lines = results_of(choices_of(TUNED[0])[:2], width, {SIZE: reason})
    assert reason in " ".join(lines)
    assert not width or max(map(len, lines)) <= width
    assert reason in " ".join(results_of([], width, {SIZE: reason}))


@pytest.mark.parametrize("width", [0, 60])
def test_what_was_passed_over_is_named_with_the_reason(width: int) -> None:
    one, other = choices_of(TUNED[0])[:2]
    lines = results_of([replace(one, overruled=((other.config.name, "wrong: off by 3"),)), other], width)
    told = " ".join(lines)
    name = short_config(other.config.name) if width else other.config.name
    assert f"passed over {name}: wrong: off by 3" in told and told.count("passed over") == 1
    assert not width or max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [0, *WIDTHS])
def test_what_is_served_stands_in_a_table_of_its_own(width: int) -> None:
    choices = [
        replace(
            choice,
            served=(
                ServedChoice("vllm", choice.config, choice.median_us * 1.25, Verified.TRUE, choice.median_us * 2),
                ServedChoice("sglang", choice.config, choice.median_us * 1.5, Verified.INTERPRETED),
            ),
        )
        for choice in choices_of(TUNED[2])
    ]
    lines = results_of(choices, width)
    assert not width or max(map(len, lines)) <= width
    words = " ".join(lines).split()
    start = next(at for at, line in enumerate(lines) if line.startswith("Served"))
    assert next(at for at, line in enumerate(lines[start:]) if "vllm" in line) <= 3  # a heading of two lines at most
    assert width or "us/best" in words
    for choice in choices:
        vllm, sglang = choice.served
        assert {f"{vllm.time_us:.2f}", f"{sglang.time_us:.2f}"} <= set(words)
    assert words.count("vllm") == words.count("sglang") == len(choices) and words.count("1.600") >= len(choices)


def test_places_are_short_on_a_terminal_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    below, outside = tmp_path / "results" / "run", tmp_path.parent / "elsewhere"
    assert show.place(Screen(80).console, below) == "results/run"
    assert show.place(Screen(0).console, below) == str(below)
    assert show.place(Screen(80).console, outside) == str(outside)


def test_what_was_not_checked_on_the_gpu_says_how_it_was() -> None:
    choices = choices_of(TUNED[0])[:2]
    for width in (0, 120):
        assert "checked" not in " ".join(results_of(choices, width)).split()
        for how in (Verified.INTERPRETED, Verified.AGREED, Verified.FALSE):
            lines = results_of([replace(choices[0], verified=how), choices[1]], width)
            assert "checked" in " ".join(lines).split()
            words = {show.INTERPRETED, how.value} if how == Verified.INTERPRETED else {how.value}
            assert [not words.isdisjoint(line.split()) for line in lines[-2:]] == [True, False]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_no_terminal_is_too_narrow_for_how_results_were_checked(path: Path, width: int) -> None:
    choices = [replace(choice, verified=Verified.INTERPRETED) for choice in choices_of(path)]
    lines = results_of(choices, width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert "checked" in words and words.count(show.INTERPRETED) == len(choices)
    if width >= 80:  # the error leaves first, and a size is on one line
        for choice in choices:
            assert [line for line in lines if short_config(choice.config.name) in line and show.INTERPRETED in line]


def test_an_error_of_zero_does_not_look_unchecked() -> None:
    checked = replace(choices_of(TUNED[0])[0], verified=Verified.TRUE, error_over_bound=0.0)
    assert show.error_share(checked) == show.EXACT
    assert show.error_share(replace(checked, verified=Verified.AGREED)) == show.EQUAL
    assert show.error_share(replace(checked, verified=Verified.FALSE)) == ""
    assert float(show.error_share(replace(checked, error_over_bound=0.25))) == 0.25
    assert show.error_share(replace(checked, error_over_bound=1e-5)) not in (show.EXACT, "0.000", "")


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_details_fit_and_hold_the_full_names(path: Path) -> None:
    for choice in choices_of(path):
        screen = Screen(80)
        show.details(screen.console, choice)
        assert max(map(len, screen.lines)) <= 80
        text = "".join(line.strip() for line in screen.lines)
        assert choice.config.name in text and choice.runner_up in text and choice.problem.key in text


@pytest.mark.parametrize("width", [0, 60, 80])
def test_a_check_of_a_batch_says_how_many(width: int) -> None:
    one, many = GemmProblem(17, 18, 19), GemmProblem(17, 18, 19, batch=3)
    screen = Screen(width)
    rows = [(problem, "name", [Verdict(problem, "name", True, 0.0, 0.5)]) for problem in (one, many)]
    show.verdicts_table(screen.console, rows, {})
    assert " 17 x 18 x 19 " in screen.lines[-2]
    assert " 3 of 17 x 18 x 19 " in screen.lines[-1]
    assert screen.lines[-1].startswith(many.key if not width else "3x17x18x19")


def test_two_checks_of_a_kernels_case_are_told_apart_on_a_terminal() -> None:
    def case(rows: int, cols: int) -> KernelProblem:
        return KernelProblem("softmax_rows", "0" * 12, (("rows", rows), ("cols", cols), ("dtype", "fp16")))

    screen, name = Screen(80), "softmax_rows_ROWS1_num_warps1"
    rows = [
        (case(4096, cols), name, [Verdict(case(*at), name, True, 0.0, 0.5) for at in ((128, 128), (61, 61))])
        for cols in (1000, 4096)
    ]
    show.verdicts_table(screen.console, rows, {})
    text = " ".join(screen.lines).split()
    assert text.count("rows=128") == text.count("rows=61") == 2 and max(map(len, screen.lines)) <= 80


@pytest.mark.parametrize("width", [0, 60, 80])
def test_a_check_that_fails_says_where(width: int) -> None:
    screen = Screen(width)
    message = "wrong at row 3, column 4: 1.5 where 2.5 is right, and many more words about it"
    verdict = Verdict(SIZE, "name", False, 1.0, 7.5, message=message)
    other = replace(SIZE, m=64)
    why = {other: "out_of_resources: 300000 bytes of shared memory"}
    show.verdicts_table(screen.console, [(SIZE, "name", [verdict]), (other, "other", [])], why)
    text = " ".join(screen.lines)
    assert "wrong" in text and "could not run" in text
    assert all(word in text.split() for word in (*message.split(), "300000", "shared"))
    assert not width or max(map(len, screen.lines)) <= width


def funnel_rows(cut: dict[str, int]) -> list[FunnelRow]:
    remain, rows = 100, []
    for name, number in cut.items():
        remain -= number
        rows.append(FunnelRow(name, Kind.VALIDITY, "because of this", number, remain))
    return rows


def funnel_line(width: int, rows: list[FunnelRow]) -> str:
    screen = Screen(width)
    show.funnel_line(screen.console, SIZE, 100, rows)
    (line,) = screen.lines
    assert not width or len(line) <= width
    return line


def test_the_funnel_on_one_line_names_the_rules_that_cut_most() -> None:
    rows = funnel_rows({"a": 5, "b": 0, "c": 50, "d": 7, "e": 1, "f": 30})
    line = funnel_line(0, rows)
    assert line.startswith(SIZE.key) and "7 of 100" in line
    assert line.index("c -50") < line.index("f -30") < line.index("d -7") < line.index("2 other rules -6")
    assert "rule" not in funnel_line(0, rows[:3]).replace("rules", "")
    assert "100 of 100" in funnel_line(0, funnel_rows({"b": 0}))
    assert "100 of 100" in funnel_line(0, [])


def test_the_funnel_on_one_line_fits_and_sums_up_what_it_does_not_name() -> None:
    rows = funnel_rows({"a_rule_with_a_long_name": 5, "another_rule_of_a_long_name": 50, "third": 7})
    for width in (60, 80, 100):
        line = funnel_line(width, rows)
        assert "38 of 100" in line
        assert sum(int(part) for part in re.findall(r" -(\d+)", line)) == 62
    assert "another_rule_of_a_long_name" in funnel_line(100, rows)


def test_the_whole_funnel_has_rules_that_cut_none_on_request_only() -> None:
    rows = funnel_rows({"first": 5, "nothing": 0, "last": 50})
    for width in (0, 60):
        for all_rules in (False, True):
            screen = Screen(width)
            show.funnel(screen.console, "title", 100, rows, all_rules=all_rules)
            text = "\n".join(screen.lines)
            assert ("nothing" in text) == all_rules
            assert text.index("first") < text.index("last") and "because of this" in text
