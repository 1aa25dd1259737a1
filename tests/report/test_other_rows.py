"""The report of a results file into which several runs wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import report_runs
from report_runs import write_run
from run_samples import HEADER, TILES, choice, write_results
from samples import problem
from screens import Screen

from gemm_tuner.cli.main import main
from gemm_tuner.gemm.short_forms import short_config
from gemm_tuner.report import data, html, text
from gemm_tuner.store.results_file import ResultsFile

OF_RUN, KEPT, EARLIER, FAILED = (problem(m, 512, 512) for m in (512, 768, 1024, 2048))


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    """A file with rows of an earlier run, of which the later one, of OF_RUN and KEPT, found nothing better for KEPT."""
    path = tmp_path / "tuned.yaml"
    older = [choice(OF_RUN, TILES["a"], 5.0), choice(KEPT, TILES["b"], 17.25), choice(EARLIER, TILES["c"], 33.5)]
    write_results(path, older, replace(HEADER, run="runs/earlier"), too_large=FAILED)
    run = tmp_path / "runs" / "later"
    run.mkdir(parents=True)
    write_run(run, report_runs.size(512), report_runs.size(768, chosen="", failure="none right"))
    file = ResultsFile(path, [OF_RUN, KEPT])
    file.record_outcome(OF_RUN, choice(OF_RUN, TILES["d"], 10.0))
    file.record_outcome(KEPT, None, "none right")
    file.write(replace(HEADER, date="2026-03-01T00:00:00Z", run="runs/later"))
    return path


@pytest.mark.parametrize("width", [0, 60, 120])
def test_rows_of_other_runs_are_shown_as_the_file_has_them(merged: Path, width: int) -> None:
    screen = Screen(width)
    text.show(data.load(merged.parent / "runs" / "later", merged), screen.console, 3)
    assert not width or max(map(len, screen.lines)) <= width
    begin = next(at for at, line in enumerate(screen.lines) if line.startswith("Rows of other runs"))
    words = " ".join(screen.lines[begin:]).split()
    for letter, us in (("b", "17.25"), ("c", "33.50")):
        name = TILES[letter].name
        assert us in words and all(word in words for word in (short_config(name) if width else name).split())
    assert "too_large" in words and "5.000" not in words
    assert "3 more rows" in " ".join(" ".join(screen.lines[:4]).split())


def test_the_page_and_the_json_have_them_too(merged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(merged), "--json", "-o", str(merged.parent / "r.html")]) == 0
    others = json.loads(capsys.readouterr().out)["other_rows"]
    assert [(one["key"], one["time_us"], one["run"]) for one in others] == [
        (KEPT.key, 17.25, "runs/earlier"),
        (EARLIER.key, 33.5, "runs/earlier"),
        (FAILED.key, None, ""),
    ]
    page = (merged.parent / "r.html").read_text()
    section = page[page.index('<section id="others">') :].partition("</section>")[0]
    assert TILES["b"].name in section and TILES["c"].name in section and "17.25" in section


def test_a_run_s_folder_has_no_other_rows(merged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = merged.parent / "runs" / "later"
    for path in (run, run / "run.json"):
        assert main(["report", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["other_rows"] == []
    assert 'id="others"' not in html.render(data.load(run))
