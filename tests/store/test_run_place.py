"""A run is found by its folder and by the results file that it wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from run_samples import HEADER, TILES, choice, size, write_results, write_run, write_table
from samples import problem

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK, UserError
from gemm_tuner.core.records import Status
from gemm_tuner.store import run_place, run_record
from gemm_tuner.store.store import STORE_FILE, Store

P = problem(64, 64, 64)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder, with its results file beside it as by -o."""
    folder = write_run(tmp_path / "results" / "run", [size(P, "a", {"a": (1.0,) * 30})])
    write_table(folder, P, {"a": (Status.OK, 1.0, 1.0)})
    write_results(tmp_path / "tuned.yaml", [choice(P, TILES["a"], 1.0)], replace(HEADER, run="results/run"))
    run_record.write(folder, replace(run_record.read(folder), results_file=str(tmp_path / "tuned.yaml")))
    return folder


def test_a_report_is_made_of_any_of_them(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("results/run", "tuned.yaml", "results/run/run.json"):
        assert main(["report", path]) == EXIT_OK
        (run / "report.html").unlink()


def test_a_results_file_in_the_folder_of_its_run_needs_no_name(run: Path) -> None:
    inside = write_results(run / "tuned.yaml", [choice(P, TILES["a"], 1.0)])
    assert run_place.run_folder(inside) == run
    assert run_place.results_file(run) == inside


def test_what_leads_to_no_run_is_refused_with_an_example(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = write_results(tmp_path / "gone.yaml", [], replace(HEADER, run="results/gone"))
    nameless = write_results(tmp_path / "old.yaml", [])
    for path in (tmp_path / "results", gone, nameless):
        assert main(["report", str(path)]) == EXIT_INPUT
        assert "a run's folder, such as" in capsys.readouterr().err
    main(["report", str(tmp_path / "results")])
    assert str(run) in capsys.readouterr().err


@pytest.mark.parametrize("command", [["report"], ["compact"], ["compare", "tuned.yaml"], ["export", "--to", "csv"]])
def test_a_folder_that_is_no_run_is_one_line_for_every_command(
    command: list[str], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = tmp_path / "results" / "begun"
    begun.mkdir()
    Store(begun / STORE_FILE).close()
    for path, words in (("results", "holds no run"), ("results/begun", "has not come to its end")):
        assert main([*command, path]) == EXIT_INPUT
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{path}: " in line and words in line


def test_a_run_that_is_not_there_is_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.parent / "ruin")]) == EXIT_INPUT
    line = capsys.readouterr().err
    assert "there is no such run" in line and str(run) in line


def test_the_results_file_of_a_run(run: Path, tmp_path: Path) -> None:
    assert run_place.results_file(run) == tmp_path / "tuned.yaml"
    assert run_place.results_file(tmp_path / "any.yaml") == tmp_path / "any.yaml"
    write_results(tmp_path / "tuned.yaml", [], replace(HEADER, run="results/another"))
    for folder in (run, tmp_path):
        with pytest.raises(UserError, match="holds no"):
            run_place.results_file(folder)


def test_a_run_s_folder_is_exported_as_its_results_file_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for path in (run, tmp_path / "tuned.yaml"):
        out = tmp_path / f"out_{path.name}"
        assert main(["export", str(path), "--to", "csv", "-o", str(out)]) == EXIT_OK
        files.append({file.relative_to(out): file.read_bytes() for file in out.rglob("*.csv")})
    assert files[0] == files[1] != {}
