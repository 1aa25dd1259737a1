"""Exports into files that are there: what stays, what gives way, what --check says."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from export_samples import (
    DEFAULT,
    FILE,
    H20,
    VLLM,
    export,
    faster,
    files,
)


def test_a_second_export_changes_nothing(tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert export(H20, "--to", "vllm", "-o", tmp_path) == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert export(H20, "--to", "vllm", "-o", tmp_path, "--check") == 0


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
