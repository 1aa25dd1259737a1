"""Searches and budgets over a recorded run: what is asked for, what the account says of the rest, what comes after."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from test_replay import RECORDING, rows

from gemm_tuner.cli.main import main
from gemm_tuner.cli.options import build_parser
from gemm_tuner.store import results, run_record


def tune(folder: Path, *more: str) -> int:
    where = ["--profiler", "replay", "--replay", str(RECORDING / "raw"), "--output_dir", str(folder / "runs")]
    what = ["--gemm_size_file", str(RECORDING / "sizes.yaml"), "--space", str(RECORDING / "space.yaml")]
    return main([*what, "--rules", str(RECORDING / "rules"), *where, "--no_warmup", *more])


def run_of(folder: Path) -> tuple[run_record.RunRecord, list[pd.DataFrame]]:
    """The record of the newest run and the tables of its sizes."""
    root = max((folder / "runs").iterdir(), key=lambda path: (len(path.name), path.name))
    record = run_record.read(root)
    return record, [run_record.read_table(root, size.key).set_index("name") for size in record.sizes]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("search", ["guided", "genetic"])
def test_a_search_that_learns_finds_what_the_full_one_did_or_its_equal(tmp_path: Path, search: str) -> None:
    assert tune(tmp_path, "--search", search) == 0
    record, tables = run_of(tmp_path)
    recorded = {row["m"]: row for row in rows(RECORDING / "tuned.yaml")}
    for size, table in zip(record.sizes, tables, strict=True):
        best = recorded[size.problem.m]
        assert table["finals_us"][size.chosen] <= 1.04 * float(str(best["median_us"]))
        timed = table["screen_us"].notna().sum()
        assert 0 < timed <= len(table)
        assert (table["status"][table["screen_us"].isna()] != "ok").all()
    assert record.facts["search rounds"] >= 1


def test_the_quick_search_times_the_predicted_best_within_a_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three, since the recording is small."""
    monkeypatch.setattr("gemm_tuner.search.QUICK_COUNT", 3)
    assert tune(tmp_path, "--search", "quick", "--budget", "10m") == 0
    record, tables = run_of(tmp_path)
    assert [len(table) for table in tables] == [2, 6, 8]
    for size, table in zip(record.sizes, tables, strict=True):
        left_out = table[table["rule"] == "not_asked_for_by_the_search"]
        asked = table.drop(left_out.index)
        assert len(asked) == min(3, len(table)) and size.chosen in asked.index
        assert left_out.empty or asked["predicted_us"].max() <= left_out["predicted_us"].min()
        assert left_out["screen_us"].isna().all() and (left_out["status"] == "pruned").all()
        # The account adds up: what no rule rejects and was not asked for has its own line.
        assert sum(step["cut"] for step in size.funnel) == size.counts["pruned"] and size.kept == len(table)
        assert size.funnel[-1]["cut"] == len(left_out) or left_out.empty
    assert record.facts["search rounds"] == 1


def test_a_finished_run_answers_at_once_and_a_benchmark_is_another(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tune(tmp_path, "--search", "quick", "--verbose") == 0
    first = capfd.readouterr()
    assert tune(tmp_path, "--search", "quick", "--verbose") == 0
    again = capfd.readouterr()
    assert "this run is finished: 3 of 3 sizes" in again.err
    assert again.err.splitlines()[-3:] == first.err.splitlines()[-3:]  # where the results are
    shown = first.out[first.out.index("Results") : first.out.index("Time per stage")]
    number = re.compile(r"\d+\.\d+")
    assert number.sub("", again.out) == number.sub("", shown) and "runner-up" in shown
    before, now = ([float(one) for one in number.findall(text)] for text in (shown, again.out))
    assert now == pytest.approx(before, rel=0.01, abs=0.01)  # the file has three decimals
    (root,) = (path for path in (tmp_path / "runs").iterdir() if path.name != "generated")
    benchmark = ["--gemm_size_file", str(root / "tuned.yaml"), "--benchmark", "--profiler", "replay"]
    assert main([*benchmark, "--replay", str(RECORDING / "raw"), "--output_dir", str(tmp_path / "runs")]) == 0
    capfd.readouterr()
    assert tune(tmp_path, "--search", "quick") == 0
    assert f"results: {root / 'tuned.yaml'}" in capfd.readouterr().err


def test_a_finished_run_that_writes_its_rows_again_keeps_what_it_took(tmp_path: Path) -> None:
    where = str(tmp_path / "out.yaml")
    assert tune(tmp_path, "--search", "quick", "-o", where) == 0
    before, _ = run_of(tmp_path)
    rows_before = results.read(where).rows
    for _ in range(2):
        Path(where).unlink()
        assert tune(tmp_path, "--search", "quick", "-o", where) == 0
        assert results.read(where).rows == rows_before
        after, _ = run_of(tmp_path)
        assert (after.seconds, after.stages, after.facts) == (before.seconds, before.stages, before.facts)
        assert after.sizes == before.sizes


@pytest.mark.parametrize("change", [{"num_warps": 16}, {"kept_from": "2026-01-01T00:00:00"}])
def test_a_finished_run_does_not_show_rows_of_another_as_its_own(
    change: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of another configuration, or of the same with another run's time."""
    assert tune(tmp_path, "--search", "quick") == 0
    (file,) = (tmp_path / "runs").glob("2*/tuned.yaml")
    document = yaml.safe_load(file.read_text())
    document["configs"][1] |= change
    document["earlier_headers"] = (
        [{**document["header"], "date": "2026-01-01T00:00:00"}] if "kept_from" in change else []
    )
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    capfd.readouterr()
    assert tune(tmp_path, "--search", "quick") == 0
    keys = [row.problem.key for row in results.read(file).rows]
    begun = [line.split()[0] for line in capfd.readouterr().out.splitlines() if line.startswith(tuple(keys))]
    assert begun == [keys[0], keys[2], f"{keys[1]}:"]  # the last is a reason below the table


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--min_improvement", "101"), "'101' is no percentage; accepted: 0 to 100"),
        (("--min_improvement", "nan"), "'nan' is no percentage"),
        (("--budget", "0"), "'0' is no time; accepted: 90, 90s, 10m, 1h30m"),
        (("--budget", "-5m"), "--budget"),
        (("--budget", "ten"), "'ten' is no time"),
        (("--search", "guide"), "did you mean guided?"),
        (("--compare", "some"), "accepted: finalists, all"),
        (("--launch_limit", "0"), "'0' is not an integer of 1 or more"),
    ],
)
def test_a_flag_that_means_nothing_is_one_line(
    flags: tuple[str, str], words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tune(tmp_path, *flags) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert words in line and flags[0] in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2m5s", 125)])
def test_a_time_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert build_parser().parse(["--budget", text]).budget == seconds
