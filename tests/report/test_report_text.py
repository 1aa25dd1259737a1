"""A report in the terminal: it fits, and says what is known of each size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import report_runs
from report_runs import configs, predicted_run, samples, served, size, table, write_run, write_table
from screens import TUNED, WIDTHS, Screen, choices_of

from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.short_forms import short_config
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.report import data, html, text
from gemm_tuner.report.numbers import number
from gemm_tuner.store import run_record
from gemm_tuner.store.run_record import Final


def lines_of(folder: Path, width: int) -> list[str]:
    screen = Screen(width)
    text.show(data.load(folder), screen.console, 3)
    return screen.lines


def real_run(folder: Path, path: Path) -> list[run_record.SizeRecord]:
    """A run with the sizes, configurations and times of a results file."""
    sizes = []
    for choice in choices_of(path)[::4]:
        finals = (Final(choice.config.name, samples(choice.median_us)), Final(VENDOR, samples(choice.median_us * 1.1)))
        sizes.append(replace(size(), problem=choice.problem, chosen=choice.config.name, finals=finals))
    failed = replace(size(768, finals=(), chosen="", failure="no configuration has a time: 118 missing_in_trace"))
    write_run(folder, *sizes, failed)
    return sizes


@pytest.mark.parametrize("path", [TUNED[0], TUNED[-1]], ids=lambda path: path.stem)
def test_a_report_of_real_results_fits_the_terminal(tmp_path: Path, path: Path) -> None:
    sizes = real_run(tmp_path, path)
    report = data.load(tmp_path)
    for width in WIDTHS:
        lines = lines_of(tmp_path, width)
        assert max(map(len, lines)) <= width
        words = " ".join(lines).split()
        for one, view in zip(sizes, report.sizes, strict=False):
            for told in (view.label, number(view.time_us), short_config(one.chosen)):
                assert all(word in words for word in told.split()), told
        assert "missing_in_trace" in words
    piped = lines_of(tmp_path, 0)
    for one in sizes:
        assert [line for line in piped if line.startswith(one.key + " ") and one.chosen in line]


@pytest.mark.parametrize("width", [0, *WIDTHS])
def test_what_is_served_and_what_was_passed_over_stands_beside_the_winner(tmp_path: Path, width: int) -> None:
    passed_over = {configs()[0].name: "wrong: off by 3"}
    folder = write_run(tmp_path, size(served=served(vllm=(12.5, 20.0), sglang=(11.0, None)), overruled=passed_over))
    lines = lines_of(folder, width)
    assert not width or max(map(len, lines)) <= width
    names = [short_config(one.name) if width else one.name for one in configs()]
    words = " ".join(lines).split()
    rows = [line.split() for line in lines if {"vllm", "sglang"} & set(line.split())]
    assert [("12.50" in row or "11.00" in row, "1.600" in row) for row in rows] == [(True, True), (True, False)]
    assert width == 60 or ("1.250" in rows[0] and "1.100" in rows[1])
    assert all(word in words for word in names[2].split())
    assert f"passed over {names[0]}: wrong: off by 3" in " ".join(words)


def test_a_predicted_report_says_so_in_its_title_and_has_no_empty_columns(tmp_path: Path) -> None:
    folder = predicted_run(tmp_path)
    for width in (0, 60, 120):
        lines = lines_of(folder, width)
        assert "predicted for" in lines[0]
        shown = "\n".join(lines)
        assert "TFLOP/s" not in shown and "roof" not in shown and "screen us" not in shown
    page = html.render(data.load(folder))
    assert "<title>GEMM tuning predicted for NVIDIA H200</title>" in page
    assert '<th class="n">TFLOP/s</th>' not in page and '<th class="n">vendor us</th>' not in page
    measured = data.load(write_run(tmp_path, size()))
    assert "predicted" not in measured.title
    assert '<th class="n">TFLOP/s</th>' in html.render(measured)


def test_the_times_of_stages_and_of_what_is_in_none_add_up_to_the_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path, size(), seconds=20.0, stages={"compile": 5.0, "screen": 12.0})
    lines = lines_of(folder, 0)
    begin = lines.index("Time per stage") + 2
    assert [float(line.split()[-1]) for line in lines[begin : begin + 4]] == [5.0, 12.0, 3.0, 20.0]
    assert f'<th scope="row">{data.OUTSIDE}</th><td data-v="3.0">' in html.render(data.load(folder))
    beside = {"compile": 12.0, "screen": 12.0}  # one while the other ran
    assert data.load(write_run(tmp_path, size(), seconds=20.0, stages=beside)).stages == beside


@pytest.mark.parametrize("width", [0, 120])
def test_a_configuration_that_did_not_end_well_has_its_reason(tmp_path: Path, width: int) -> None:
    folder = predicted_run(tmp_path)
    columns = {"status": ["ok", "pruned", "spilled", "ok"], "predicted_us": [9.0, 8.0, 10.0, 11.0]}
    messages = ["its time is predicted", None, "spills 152,\nmore than 64", None]
    made = table(configs(), rule=[None, "not_in_best_16_predicted", None, None], message=messages, **columns)
    write_table(folder, size().key, made)
    shown = " ".join(" ".join(lines_of(folder, width)).split())
    assert "not_in_best_16_predicted" in shown and "spills 152, more than 64" in shown
    assert "its time is predicted" not in shown  # of one that is ok


def rule(name: str) -> dict[str, object]:
    return {**report_runs.FUNNEL[0], "rule": name}


def test_rules_are_in_the_order_of_the_rules(tmp_path: Path) -> None:
    first, second = size(funnel=(rule("one"), rule("four"))), size(768, funnel=(rule("two"), rule("three")))
    write_run(tmp_path, first, second, rules=("one", "two", "three", "four"))
    assert [row["rule"] for row in data.load(tmp_path).funnel] == ["one", "two", "three", "four"]
    write_run(tmp_path, first, second)  # an older record, which does not tell
    assert [row["rule"] for row in data.load(tmp_path).funnel] == ["one", "four", "two", "three"]


def test_notes_and_labels_are_in_words(tmp_path: Path) -> None:
    notes = dict.fromkeys(data.NOTES_IN_WORDS, 231) | {"another": 7}
    folder = write_run(tmp_path, size(), replace(size(768), problem=replace(size().problem, bias=True)), notes=notes)
    page = html.render(data.load(folder))
    for shown in (page[: page.index("<script")], "\n".join(lines_of(folder, 80))):
        assert not [name for name in data.NOTES_IN_WORDS if "_" in name and name in shown]
        assert "another" in shown
        assert "row-major" in shown and "every row of C" in " ".join(shown.split())


def test_what_is_not_known_of_a_run_is_not_listed(tmp_path: Path) -> None:
    versions = {"triton": "3.9.0", "hip": None}
    header = {"source": "predicted", "driver": "", "profiler": "", "l2": None, "versions": versions, "samples": 0}
    folder = write_run(tmp_path, size(finals=()), header=header)
    for width in (0, 80):
        lines = [line.split() for line in lines_of(folder, width)]
        assert ["versions", "triton", "3.9.0"] in lines and ["samples", "0"] in lines
        assert not [line for line in lines if line and line[0] in ("driver", "profiler", "l2")]


@pytest.mark.parametrize("width", [0, *WIDTHS])
def test_a_choice_that_was_not_checked_on_the_gpu_is_told_apart(tmp_path: Path, width: int) -> None:
    unchecked, agreed = size(verified=Verified.FALSE), size(768, verified=Verified.AGREED)
    folder = write_run(tmp_path, size(256, verified=Verified.TRUE), unchecked, agreed)
    lines = lines_of(folder, width)
    assert not width or max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert "1 of them not checked" in " ".join(words) and (words.count("false"), words.count("agreed")) == (1, 1)
    page = html.render(data.load(folder))
    assert page.count("not checked</span>") == 1 and "1 not checked</strong>" in page and "(agreed)" in page
    assert "not checked" not in html.render(data.load(write_run(tmp_path, size(256, verified=Verified.TRUE))))
