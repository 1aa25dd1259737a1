"""Exported files, byte for byte and through each consumer's look-up rule; what is filled."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from consumer_look_ups import AITER_BOUNDS, aiter, aiter_launch, sglang, vllm
from export_samples import (
    AITER,
    DEFAULT,
    FILE,
    GOLDEN,
    H20,
    MI300X,
    SHIPPED,
    VLLM,
    edited,
    export,
    files,
    rows,
    side,
)

from gemm_tuner.consumers.block_fp8 import GRID
from gemm_tuner.export.fill import stand_in


@pytest.mark.parametrize("to", ["vllm", "sglang", "aiter", "triton", "json"])
@pytest.mark.parametrize("results", [H20, MI300X, SHIPPED], ids=lambda path: path.stem)
def test_files_are_the_golden_ones_byte_for_byte(to: str, results: Path, tmp_path: Path) -> None:
    export(results, "--to", to, "-o", tmp_path)
    if to == "csv":  # a column for each fact that any row may hold: those that are blank everywhere come and go
        assert cells(tmp_path) == cells(GOLDEN / to / results.stem)
    else:
        assert files(tmp_path) == files(GOLDEN / to / results.stem)


def cells(folder: Path) -> list[dict[str, str]]:
    with (folder / "gemm_configs.csv").open() as file:
        return [{key: cell for key, cell in row.items() if cell} for row in csv.DictReader(file)]


@pytest.mark.parametrize("results", [H20, MI300X, SHIPPED], ids=lambda path: path.stem)
def test_a_csv_has_every_field_of_every_verified_row(results: Path, tmp_path: Path) -> None:
    """As the results file has it; cells of fields that a row does not have, or has at their default, are blank."""
    export(results, "--to", "csv", "-o", tmp_path)
    with (tmp_path / "gemm_configs.csv").open() as file:
        written = list(csv.DictReader(file))
    offered = [row for row in rows(results) if row["verified"] is True and row["source"] == "measured"]
    assert [{key: cell for key, cell in row.items() if cell and key != "key"} for row in written] == [
        {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in row.items()
            if (key, value) != ("STREAM_B", 0)
        }
        for row in sorted(offered, key=lambda row: (row["M"], row["N"], row["K"]))
    ]
    assert len({row["key"] for row in written}) == len(written) > 5


@pytest.mark.parametrize("look_up", [vllm, sglang])
def test_nearest_m_readers_get_the_tuned_config_of_every_tuned_size(look_up: Any, tmp_path: Path) -> None:
    export(H20, "--to", look_up.__name__, "-o", tmp_path)
    tuned = [row for row in rows(H20) if row["N"] == 7168 and row["dtype_c"] == "bf16"]
    assert len(tuned) == 4
    for row in tuned:
        served = look_up(tmp_path, "NVIDIA H20", 7168, 2048, row["M"])
        assert served == {key: row[key] for key in served}
        assert set(served) == {*DEFAULT, "num_stages"}


def test_older_sglang_finds_the_same_file(tmp_path: Path) -> None:
    export(H20, "--to", "sglang", "-o", tmp_path)
    new, old = (sglang(tmp_path, "NVIDIA H20", 7168, 2048, 64, older=older) for older in (False, True))
    assert new == old is not None


def test_only_the_folder_that_is_there_gets_sglangs_files(tmp_path: Path) -> None:
    (tmp_path / "sglang/srt/layers/quantization/configs").mkdir(parents=True)
    export(H20, "--to", "sglang", "-o", tmp_path)
    assert sglang(tmp_path, "NVIDIA H20", 7168, 2048, 64, older=True)
    assert not (tmp_path / "sglang/kernels").exists()


@pytest.mark.parametrize("default_in", ["nested", "legacy"])
def test_aiter_gets_the_tuned_config_in_either_layout(default_in: str, tmp_path: Path) -> None:
    export(MI300X, "--to", "aiter", "-o", tmp_path)
    nested = default_in == "nested"
    folder = tmp_path / AITER / ("gfx942/triton/gemm/gemm_a8w8_blockscale" if nested else "gemm")
    (folder / ("DEFAULT.json" if nested else "gfx942-GEMM-A8W8_BLOCKSCALE.json")).write_text('{"any": {}}')
    for row in rows(MI300X):
        if row.get("scaling") != "block" or row["M"] == 24:  # the bucket of 24 was tuned at 32
            continue
        served, is_tuned = aiter(tmp_path, "gfx942", "GEMM-A8W8_BLOCKSCALE", 7168, 2048, row["M"])
        assert is_tuned == (row["M"] <= 8192)
        assert served["NUM_KSPLIT"] == row["SPLIT_K"]
        assert served["cache_modifier"] == (".cg" if row.get("STREAM_B") else None)
        assert all(served[key] == row[key] for key in served if key in row)
        assert aiter_launch(served, 2048) == (row["BLOCK_SIZE_K"], row["SPLIT_K"])
        assert len(served) == 11  # the ten keys, and kpack on gfx942


@pytest.mark.parametrize("default_in", ["gfx942/triton/gemm/gemm_a8w8_blockscale", "gemm"])
def test_only_the_layout_whose_default_is_there_gets_aiters_files(default_in: str, tmp_path: Path) -> None:
    folder = tmp_path / AITER / default_in
    folder.mkdir(parents=True)
    default = "gfx942-GEMM-A8W8_BLOCKSCALE.json" if default_in == "gemm" else "DEFAULT.json"
    (folder / default).write_text('{"any": {"BLOCK_SIZE_M": 64}}')
    export(MI300X, "--to", "aiter", "-o", tmp_path)
    assert [path.parent for path in tmp_path.rglob("*BLOCKSCALE-N=7168*")] == [folder]


def test_aiters_block_scaled_kernel_deals_no_tiles_to_chiplets_and_the_others_do(tmp_path: Path) -> None:
    results = edited(MI300X, tmp_path / "r.yaml", configs=lambda found: [{**row, "NUM_XCDS": 8} for row in found])
    export(results, "--to", "aiter", "-o", tmp_path)
    names = {path.name for path in tmp_path.rglob("*GEMM-*")}
    assert names == {"GEMM-A8W8-N=4096-K=4096.json", "gfx942-GEMM-A8W8-N=4096-K=4096.json"}


def test_every_aiter_bucket_is_there(tmp_path: Path) -> None:
    export(MI300X, "--to", "aiter", "-o", tmp_path)
    body = json.loads((tmp_path / AITER / "gemm/gfx942-GEMM-A8W8_BLOCKSCALE-N=7168-K=2048.json").read_text())
    assert list(body) == [*(f"M_LEQ_{bound}" for bound in AITER_BOUNDS), "any"]


def test_aiters_own_default_fills_what_was_not_tuned(tmp_path: Path) -> None:
    legacy = tmp_path / AITER / "gemm"
    legacy.mkdir(parents=True)
    own = {"BLOCK_SIZE_M": 32, "mark": "own"}
    (legacy / "gfx942-GEMM-A16W16.json").write_text(json.dumps({"M_LEQ_64": own, "any": {"BLOCK_SIZE_M": 256}}))
    export(MI300X, "--to", "aiter", "-o", tmp_path)
    body = json.loads((legacy / "gfx942-GEMM-A16W16-N=4096-K=4096.json").read_text())
    assert body["M_LEQ_1"] == body["M_LEQ_32"] == own
    assert body["M_LEQ_1024"] == {"BLOCK_SIZE_M": 256}
    assert body["M_LEQ_128"]["BLOCK_SIZE_M"] == 64
    assert not (tmp_path / AITER / "gfx942/triton/gemm/gemm_a16w16").exists()


def test_an_aiter_file_that_would_give_small_sizes_a_large_tile_is_not_written(tmp_path: Path, capsys: Any) -> None:
    export(MI300X, "--to", "aiter", "-o", tmp_path)
    assert not list(tmp_path.rglob("*A16W16*"))
    assert "no config is known for M_LEQ_1" in capsys.readouterr().err


def test_no_size_up_to_the_grids_end_gets_a_tile_of_a_much_larger_one(tmp_path: Path) -> None:
    only_large = edited(H20, tmp_path / "r.yaml", configs=lambda found: [r for r in found if r["M"] == 4096])
    export(only_large, "--to", "vllm", "-o", tmp_path)
    for m in range(1, 4097):
        served = vllm(tmp_path, "NVIDIA H20", 7168, 2048, m)
        assert served is not None
        assert served["BLOCK_SIZE_M"] <= 64 or m > 1500


@pytest.mark.parametrize(
    ("m", "tile_rows", "serves"),
    [
        (3, {1: 16}, 1),  # one tile holds both
        (24, {16: 16, 32: 32}, 32),  # the nearer by ratio
        (12, {16: 16, 8: 16}, 16),
        (100, {50: 64, 200: 128}, 50),  # equally near: the smaller
        (32, {64: 64}, None),  # its tile has more rows than 32
        (40, {64: 64}, 64),
        (1000, {64: 64, 4096: 256}, None),  # both too far
        (17, {16: 16, 4096: 16}, 16),
        (1, {16: 32}, None),
    ],
)
def test_who_stands_in_for_a_size_that_was_not_tuned(m: int, tile_rows: dict[int, int], serves: int | None) -> None:
    assert stand_in(m, tile_rows) == serves


def test_gaps_are_filled_with_the_consumers_default(tmp_path: Path) -> None:
    for to, look_up, stages in (("vllm", vllm, 2), ("sglang", sglang, 3)):
        export(H20, "--to", to, "-o", tmp_path)
        assert look_up(tmp_path, "NVIDIA H20", 7168, 2048, 1024) == {**DEFAULT, "num_stages": stages}


def test_no_key_but_sizes_stands_in_a_file(tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    body = json.loads((tmp_path / FILE).read_text())
    assert [int(key) for key in body] == sorted({*GRID, 200})


def test_provenance_says_where_each_entry_is_from(tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    document = side(tmp_path / VLLM)
    notes = document["files"][FILE.name]
    assert notes["64"]["kind"] == "tuned"
    assert notes["64"]["time_us"] == document["sizes"][FILE.name]["64"]["tuned_us"] == 9.25
    assert (notes["48"]["kind"], notes["48"]["m"]) == ("stand_in", 64)
    assert "time_us" not in notes["48"]
    assert notes["1024"]["kind"] == "default"
    told = document["results"][notes["64"]["results"]]
    assert told["file"] == "h20.yaml"
    assert told["header"]["device"] == "NVIDIA H20"
    reasons = {one["size"].split("_")[0]: one["reason"] for one in told["left_out"]}
    assert "timed out" in reasons["8x4096x7168"]
    assert "gemm_split_k" in reasons["64x4096x7168"]
    assert "not verified" in reasons["128x4096x7168"]
    assert "predicted" in reasons["256x4096x7168"]
    assert "does not divide the scale group" in reasons["512x4096x7168"]
    assert "no block scales" in reasons["32x4096x4096"]


def test_what_is_left_out_is_said_on_stderr_with_the_reason(tmp_path: Path, capsys: Any) -> None:
    names = [f"{row['M']}x{row['N']}x{row['K']}_" for row in rows(SHIPPED)]
    for flags in ([], ["--verbose"]):
        export(SHIPPED, "--to", "aiter", "-o", tmp_path, *flags)
        err = capsys.readouterr().err
        reason = "is for sm_90; AITER runs on AMD GPUs"
        (line,) = [line for line in err.splitlines() if reason in line]  # one line for one reason
        named = [name for name in names if name in line]
        assert line.index(reason) < min(map(line.index, named))
        if flags:
            assert named == names and line.count("gemm_") >= len(names)
        else:
            assert 0 < len(named) < 5 and f"{len(names) - len(named)} more" in line and "gemm_" not in line


def test_nothing_to_export_is_exit_status_1_and_writes_nothing(tmp_path: Path) -> None:
    assert export(SHIPPED, "--to", "aiter", "-o", tmp_path / "out") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bias": True}, "has bias"),
        ({"activation": "gelu"}, "has activation"),
        ({"alpha": 0.5}, "has alpha"),
        ({"beta": 1.0}, "has beta"),
        ({"layout_b": "row"}, "layout_b: row"),
        ({"layout_a": "col"}, "layout_a: col"),
        ({"scaling": "row_col"}, "no block scales"),
        ({"dtype_a": "fp8_e5m2", "dtype_b": "fp8_e5m2"}, "e4m3 by e4m3"),
        ({"SPLIT_K": 2}, "splits K in 2"),
        ({"NUM_XCDS": 8}, "8 chiplets"),
        ({"STREAM_B": 1}, "past the nearest cache"),
        ({"family": "gemm_persistent"}, "another kernel"),
        ({"BLOCK_SIZE_K": 256}, "does not divide"),
    ],
)
def test_what_vllm_cannot_launch_is_left_out(change: dict[str, Any], reason: str, tmp_path: Path, capsys: Any) -> None:
    one = edited(H20, tmp_path / "r.yaml", configs=lambda found: [{**found[0], **change}])
    assert export(one, "--to", "vllm", "-o", tmp_path) == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "vllm").exists()


def test_sglang_on_amd_takes_no_block_below_the_scale_group(tmp_path: Path, capsys: Any) -> None:
    def small(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "BLOCK_SIZE_K": 64} for row in found if row["M"] == 32]

    results = edited(MI300X, tmp_path / "r.yaml", configs=small)
    assert export(results, "--to", "sglang", "-o", tmp_path) == 1
    assert "turns into 128 on AMD" in capsys.readouterr().err
    assert export(results, "--to", "vllm", "-o", tmp_path) == 0


def test_predicted_rows_go_out_only_when_asked_and_are_called_so(tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path, "--predicted")
    file = FILE.name.replace("N=7168,K=2048", "N=4096,K=7168")
    note = side(tmp_path / VLLM)["files"][file]["256"]
    assert (note["source"], note["m"]) == ("predicted", 256)
    assert "time_us" not in note
    export(H20, "--to", "csv", "-o", tmp_path, "--predicted")
    with (tmp_path / "gemm_configs.csv").open() as file_:
        assert {row["source"] for row in csv.DictReader(file_)} == {"measured", "predicted"}


def test_a_measured_entry_takes_the_place_of_a_predicted_one_and_never_the_reverse(tmp_path: Path) -> None:
    def as_measured(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        row = next(row for row in found if row.get("source") == "predicted")
        timed = {**row, "source": "measured", "median_us": row["predicted_us"], "num_stages": 3}
        return [{key: value for key, value in timed.items() if key != "predicted_us"}]

    path = tmp_path / str(FILE).replace("N=7168,K=2048", "N=4096,K=7168")
    measured = edited(H20, tmp_path / "r.yaml", configs=as_measured)
    stages = []
    for results in (H20, measured, H20):
        export(results, "--to", "vllm", "-o", tmp_path, "--predicted")
        stages.append(json.loads(path.read_text())["256"]["num_stages"])
    assert stages == [4, 3, 3]


def test_of_the_entries_of_a_file_it_is_said_how_many_were_tuned(tmp_path: Path, capsys: Any) -> None:
    def right(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [r for r in found if (r["N"], r["K"], r["dtype_c"]) == (7168, 2048, "bf16")]

    results = edited(H20, tmp_path / "r.yaml", configs=right, without_config=lambda _: [])
    size_count = len(rows(results))
    for words, verb in ((["--check"], "to add"), ([], "added"), ([], "unchanged")):
        export(results, "--to", "vllm", "-o", tmp_path, *words)
        out = capsys.readouterr().out
        (line,) = [line for line in out.splitlines() if FILE.name in line]
        total, told = line.split(": ")[-2:]
        assert total == f"19 {verb}"
        counts = {kind: int(count) for count, _, kind in (part.partition(" ") for part in told.split(", "))}
        assert sum(counts.values()) == 19
        kinds = [note["kind"] for note in side(tmp_path / VLLM)["files"][FILE.name].values()] if not words else []
        if kinds:
            assert counts["tuned"] == kinds.count("tuned") and counts["the default"] == kinds.count("default")
        assert f"{size_count} of {size_count} sizes in 1 file" in out.splitlines()


def test_an_entry_that_never_ran_is_not_counted_as_tuned(tmp_path: Path, capsys: Any) -> None:
    for row in ("predicted", "measured"):
        results = edited(
            H20, tmp_path / "r.yaml",
            configs=lambda found, row=row: [r for r in found if r.get("source") == row and r["N"] == 4096
                                            and (r["M"] == 256 or row == "measured")],
        )  # fmt: skip
        export(results, "--to", "vllm", "-o", tmp_path / row, "--predicted")
        told = capsys.readouterr().out
        assert ("1 predicted" in told, "tuned" in told.partition("json: ")[2]) == (
            row == "predicted",
            row != "predicted",
        )
