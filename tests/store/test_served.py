"""What a row holds for the consumers of --serve: written, read, kept by a merge, exported, told by serve-check."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from export_samples import VLLM, export, side
from result_files import write_choices
from run_samples import HEADER, choice, size, write_run
from samples import config

from gemm_tuner.cli import main as cli
from gemm_tuner.core.choice import Choice, ServedChoice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.store import results, results_file, run_record
from gemm_tuner.store.served import served_rows

PROBLEM = GemmProblem(64, 4096, 7168, "fp8_e4m3", "fp8_e4m3", "bf16", Layout.ROW, Layout.COL, scaling="block")
WINNER = KernelConfig("gemm_persistent", 128, 128, 128, 8, 1, 8, 3, PROGRAMS_PER_SM=1)
TILE = config(BLOCK_SIZE_M=64, BLOCK_SIZE_N=32, BLOCK_SIZE_K=128, num_stages=5)
SERVED = ServedChoice("vllm", TILE, 12.5, Verified.TRUE, 20.25)


def with_served(*served: ServedChoice, source: str = "measured", us: float = 10.0) -> Choice:
    return dataclasses.replace(choice(PROBLEM, WINNER, us, source=source), served=served)


def write(path: Path, one: Choice) -> Path:
    write_choices(path, HEADER, [one])
    return path


@pytest.mark.parametrize("source", ["measured", "predicted"])
@pytest.mark.parametrize("verified", list(Verified))
@pytest.mark.parametrize("default_us", [None, 20.25])
def test_served_entries_read_back_as_written(
    source: str, verified: Verified, default_us: float | None, tmp_path: Path
) -> None:
    one = dataclasses.replace(SERVED, verified=verified, default_us=default_us, processes=4, process_spread_pct=1.25)
    other = dataclasses.replace(one, consumer="sglang", time_us=13.0)
    path = write(tmp_path / "r.yaml", with_served(one, other, source=source))
    (row,) = results.read(path).rows
    assert row.served == (one, other)
    (raw,) = yaml.safe_load(path.read_text())["configs"]
    assert raw["stand_in"] == "gemm_tile" and list(raw["served"]) == ["vllm", "sglang"]


def test_a_row_without_served_entries_says_nothing_of_them(tmp_path: Path) -> None:
    path = write(tmp_path / "r.yaml", with_served())
    assert "served" not in path.read_text() and "stand_in" not in path.read_text()
    assert results.read(path).rows[0].served == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"served": 3}, ["served is 3"]),
        ({"served": {"vlm": {}}}, ["unknown key 'vlm'", "vllm"]),
        ({"served": {"vllm": {}}}, ["served vllm", "has no config"]),
        ({"stand_in": "gemv"}, ["stand_in is 'gemv'", "gemm_tile"]),
    ],
)
def test_a_served_entry_that_is_none_is_refused(change: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "r.yaml", with_served(SERVED))
    document = yaml.safe_load(path.read_text())
    document["configs"][0] |= change
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UserError) as caught:
        results.read(path)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("median_us", -1),
        ("median_us", "fast"),
        ("default_us", 0),
        ("warps", 4),
        ("process_spread_pct", -1),
        ("processes", "few"),
    ],
)
def test_a_bad_field_of_a_served_entry_is_named(key: str, value: object, tmp_path: Path) -> None:
    path = write(tmp_path / "r.yaml", with_served(SERVED))
    document = yaml.safe_load(path.read_text())
    document["configs"][0]["served"]["vllm"][key] = value
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UserError, match=key):
        results.read(path)


def test_a_merge_keeps_what_this_run_was_not_asked_to_serve(tmp_path: Path) -> None:
    path = write(tmp_path / "r.yaml", with_served(SERVED))
    sglang = dataclasses.replace(SERVED, consumer="sglang")
    for new, kept in ((with_served(us=9.0), {"vllm"}), (with_served(sglang, us=8.0), {"vllm", "sglang"})):
        growing = results_file.ResultsFile(path, [PROBLEM])
        growing.record_outcome(PROBLEM, new)
        growing.write(HEADER)
        (row,) = results.read(path).rows
        assert {one.consumer for one in row.served} == kept and row.facts["median_us"] == new.median_us


@pytest.mark.parametrize("finishes", [True, False])
def test_a_merge_drops_what_this_run_found_wrong(finishes: bool, tmp_path: Path) -> None:
    other = dataclasses.replace(SERVED, consumer="sglang", config=config(BLOCK_SIZE_M=128))
    path = write(tmp_path / "r.yaml", with_served(SERVED, other))
    growing = results_file.ResultsFile(path, [PROBLEM])
    wrong = results_file.Judgement({TILE.name: "wrong: at 64 x 64 x 64"})
    growing.record_outcome(PROBLEM, with_served(us=9.0) if finishes else None, judgement=wrong)
    growing.write(HEADER)
    (row,) = results.read(path).rows
    assert [one.consumer for one in row.served] == ["sglang"] and row.verified is Verified.TRUE
    growing = results_file.ResultsFile(path, [PROBLEM])
    both = results_file.Judgement({one.config.name: "" for one in (SERVED, other)})
    growing.record_outcome(PROBLEM, None, judgement=both)
    growing.write(HEADER)
    assert "stand_in" not in path.read_text() and results.read(path).rows[0].served == ()


def test_an_entry_goes_where_the_run_found_none_and_stays_with_its_date_where_it_did_not_look(tmp_path: Path) -> None:
    path = write(tmp_path / "r.yaml", with_served(SERVED, dataclasses.replace(SERVED, consumer="sglang")))
    dates = ("2026-02-28T12:00:00Z", "2026-03-31T12:00:00Z")
    for date, asked, left in zip(dates, ("sglang", "aiter"), ({"vllm"}, {"vllm"}), strict=True):
        growing = results_file.ResultsFile(path, [PROBLEM])
        growing.record_outcome(
            PROBLEM, with_served(us=9.0), judgement=results_file.Judgement(asked=frozenset((asked,)))
        )
        growing.write(dataclasses.replace(HEADER, date=date))
        found = results.read(path)
        assert {one.consumer: one.kept_from for one in found.rows[0].served} == dict.fromkeys(left, HEADER.date)
        assert [one["date"] for one in found.earlier_headers] == [HEADER.date]
    growing = results_file.ResultsFile(path, [PROBLEM])
    growing.record_outcome(PROBLEM, with_served(), judgement=results_file.Judgement(asked=frozenset(("vllm",))))
    growing.write(HEADER)
    found = results.read(path)
    assert found.rows[0].served == () and found.earlier_headers == ()


def test_an_export_takes_the_served_entry_and_needs_no_table(tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "r.yaml", with_served(SERVED))
    assert export(path, "--to", "vllm", "-o", tmp_path) == 0
    (notes,) = side(tmp_path / VLLM)["files"].values()
    note = notes["64"]
    assert (note["name"], note["time_us"], note["default_us"], note["verified"]) == (TILE.name, 12.5, 20.25, True)
    assert export(path, "--to", "sglang", "-o", tmp_path) == 1  # nothing was found for SGLang
    capsys.readouterr()
    assert cli.main(["serve-check", str(tmp_path), "--as", "vllm", "--m", "64", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["files"][0]["servings"]
    assert (one["time_us"], one["tuned_us"], one["default_us"]) == (12.5, 10.0, 20.25)


@pytest.mark.parametrize(
    ("verified", "source", "flag"),
    [
        (Verified.FALSE, "measured", "--unverified"),
        (Verified.INTERPRETED, "measured", "--predicted"),
        (Verified.INTERPRETED, "predicted", "--predicted"),
    ],
)
def test_a_served_entry_follows_the_rule_of_all_rows(
    verified: Verified, source: str, flag: str, tmp_path: Path
) -> None:
    one = dataclasses.replace(SERVED, verified=verified)
    path = write(tmp_path / "r.yaml", with_served(one, source=source))
    assert export(path, "--to", "vllm", "-o", tmp_path / "out") == 1
    assert not (tmp_path / "out").exists()
    assert export(path, "--to", "vllm", "-o", tmp_path / "out", flag) == 0


def test_a_run_keeps_what_it_serves_and_a_report_tells(tmp_path: Path, capsys: Any) -> None:
    rows = served_rows((SERVED,), predicted=False)["served"]
    record = dataclasses.replace(size(PROBLEM, "a", {"a": (10.0, 10.5, 11.0)}), served=rows)
    folder = write_run(tmp_path / "run", [record])
    assert run_record.read(folder).sizes[0].served == rows
    assert cli.main(["report", str(folder), "--text"]) == 0
    told = capsys.readouterr().out
    assert "Served" in told and TILE.name in told and "1.62" in told  # 20.25 / 12.5
    assert cli.main(["report", str(folder), "--json"]) == 0
    told_of = json.loads(capsys.readouterr().out)["sizes"][0]["served"]
    assert {name: {key: told_of[name][key] for key in row} for name, row in rows.items()} == rows


def test_a_record_with_a_served_entry_that_is_none_is_refused(tmp_path: Path) -> None:
    record = dataclasses.replace(size(PROBLEM, "a", {"a": (10.0,)}), served={"vllm": {"num_warps": 3}})
    with pytest.raises(UserError, match="served vllm"):
        run_record.read(write_run(tmp_path / "run", [record]))
