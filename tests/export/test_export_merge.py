"""Exports into files that are there: what stays, what gives way, what --check says."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from export_samples import AITER, DEFAULT, FILE, H20, MI300X, VLLM, edited, export, faster, files


def test_a_second_export_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    export(H20, "--to", "vllm", "-o", tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    capsys.readouterr()
    export(H20, "--to", "vllm", "-o", tmp_path, "--check", "--json")
    assert json.loads(capsys.readouterr().out)["differs"] is False


@pytest.mark.parametrize(("us", "stages"), [(9.0, 2), (9.5, 4)])
def test_the_better_entry_stays(us: float, stages: int, tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    export(faster(tmp_path / "r.yaml", 64, us, num_stages=2), "--to", "vllm", "-o", tmp_path)
    body = json.loads((tmp_path / FILE).read_text())
    assert body["64"]["num_stages"] == stages
    assert body["48"]["num_stages"] == stages  # the fillings follow
    assert body["4096"]["BLOCK_SIZE_M"] == 128


def test_a_filling_gives_way_to_a_measured_entry(tmp_path: Path) -> None:
    export(faster(tmp_path / "r.yaml", 4096, 170.0), "--to", "vllm", "-o", tmp_path)
    assert json.loads((tmp_path / FILE).read_text())["64"]["GROUP_SIZE_M"] == 32
    export(H20, "--to", "vllm", "-o", tmp_path)
    assert json.loads((tmp_path / FILE).read_text())["64"]["GROUP_SIZE_M"] == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_entries_of_unknown_origin_stay_unless_told_otherwise(overwrite: bool, tmp_path: Path) -> None:
    foreign = {**DEFAULT, "num_stages": 7}
    (tmp_path / VLLM).mkdir(parents=True)
    (tmp_path / FILE).write_text(json.dumps({"64": foreign, "48": foreign, "640": foreign}))
    export(H20, "--to", "vllm", "-o", tmp_path, *(["--overwrite"] if overwrite else []))
    body = json.loads((tmp_path / FILE).read_text())
    assert (body["64"] == foreign) != overwrite
    assert body["48"] == body["640"] == foreign  # a filling replaces nobody
    assert list(body) == sorted(body, key=int)


def test_an_entry_that_was_edited_by_hand_is_of_unknown_origin(tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    body = json.loads((tmp_path / FILE).read_text())
    body["64"]["num_stages"] = 6
    (tmp_path / FILE).write_text(json.dumps(body))
    export(H20, "--to", "vllm", "-o", tmp_path)
    assert json.loads((tmp_path / FILE).read_text())["64"]["num_stages"] == 6


def test_check_says_what_would_change_and_changes_nothing(tmp_path: Path, capsys: Any) -> None:
    assert export(H20, "--to", "vllm", "-o", tmp_path / "new", "--check") == 1
    assert not (tmp_path / "new").exists()
    export(H20, "--to", "vllm", "-o", tmp_path)
    before = files(tmp_path)
    capsys.readouterr()
    better = faster(tmp_path / "r.yaml", 64, 9.0, num_stages=2)
    assert export(better, "--to", "vllm", "-o", tmp_path, "--check", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    changed = {c["key"]: c["what"] for c in document["files"][0]["changes"] if c["what"] != "same"}
    assert changed == {"64": "replace", "48": "replace", "96": "replace"}
    assert document["differs"] is True
    assert document["written"] is False
    assert {**files(tmp_path), "r.yaml": b""} == {**before, "r.yaml": b""}


def test_csv_and_json_are_merged_by_size_too(tmp_path: Path) -> None:
    for to in ("json", "csv", "triton"):
        export(H20, "--to", to, "-o", tmp_path)
        export(faster(tmp_path / "r.yaml", 64, 9.0, num_stages=2), "--to", to, "-o", tmp_path)
    key = "64x7168x2048_fp8_e4m3_fp8_e4m3_bf16_nt_scale_block"
    body = json.loads((tmp_path / "gemm_configs.json").read_text())
    assert (body[key]["median_us"], len(body)) == (9.0, 9)
    with (tmp_path / "gemm_configs.csv").open() as file:
        by_key = {row["key"]: row for row in csv.DictReader(file)}
    assert (by_key[key]["median_us"], by_key[key]["num_stages"], len(by_key)) == ("9.0", "2", 9)
    assert json.loads((tmp_path / "triton_configs.json").read_text())[key]["num_stages"] == 2


def bucket_of_32(folder: Path) -> int:
    """BLOCK_SIZE_N under M_LEQ_32 of AITER's file."""
    body = json.loads((folder / AITER / "gemm/gfx942-GEMM-A8W8_BLOCKSCALE-N=7168-K=2048.json").read_text())
    return int(body["M_LEQ_32"]["BLOCK_SIZE_N"])


def at(out: Path, *sizes: tuple[int, int, float]) -> Path:
    """AMD results of M = 1 and of sizes with a BLOCK_SIZE_N and a time each, tiles of 32 rows."""

    def made(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        base = next(row for row in found if row["M"] == 32)
        return [found[0], *({**base, "M": m, "BLOCK_SIZE_N": n, "median_us": us} for m, n, us in sizes)]

    return edited(MI300X, out, configs=made)


def test_a_bucket_goes_to_the_larger_size_whatever_its_time(tmp_path: Path) -> None:
    seen = []
    for m, n, us in ((24, 16, 5.0), (32, 32, 9.0), (24, 64, 4.0)):
        export(at(tmp_path / "r.yaml", (m, n, us)), "--to", "aiter", "-o", tmp_path)
        seen.append(bucket_of_32(tmp_path))
    assert seen == [16, 32, 32]


def test_a_prediction_at_a_larger_size_does_not_take_a_measured_ones_bucket(tmp_path: Path) -> None:
    def as_predicted(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        *others, last = found
        times = {"median_us": None, "predicted_us": last["median_us"], "source": "predicted", "verified": "interpreted"}
        return [*others, {key: value for key, value in {**last, **times}.items() if value is not None}]

    seen = []
    for number, (m, n) in enumerate(((24, 16), (32, 32), (32, 64))):
        results = at(tmp_path / "r.yaml", (m, n, 5.0))
        if number == 0:
            results = edited(results, results, configs=lambda found: [{**row, "verified": "agreed"} for row in found])
        elif number == 1:
            results = edited(results, results, configs=as_predicted)
        export(results, "--to", "aiter", "-o", tmp_path, "--predicted")
        seen.append(bucket_of_32(tmp_path))
    assert seen == [16, 16, 64]


def test_a_filling_of_a_larger_size_gives_way_to_a_measured_entry(tmp_path: Path) -> None:
    export(at(tmp_path / "r.yaml", (64, 16, 5.0)), "--to", "aiter", "-o", tmp_path)
    assert bucket_of_32(tmp_path) == 16
    export(at(tmp_path / "r.yaml", (32, 64, 9.0)), "--to", "aiter", "-o", tmp_path)
    assert bucket_of_32(tmp_path) == 64


def test_a_file_in_which_nothing_changes_is_left_as_it_is(tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    other_form = json.dumps(json.loads((tmp_path / FILE).read_text()))
    (tmp_path / FILE).write_text(other_form)
    export(H20, "--to", "vllm", "-o", tmp_path)
    assert (tmp_path / FILE).read_text() == other_form
