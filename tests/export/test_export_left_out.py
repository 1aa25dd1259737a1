"""What is taken from a run's table, what a device of --for cannot hold, and input that is hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from consumer_look_ups import vllm
from export_samples import (
    FILE,
    H20,
    MI300X,
    VLLM,
    edited,
    export,
    faster,
    side,
    with_table,
)
from samples import config

from gemm_tuner.consumers.sidecar import FILE_NAME
from gemm_tuner.store.results import read


def test_the_best_plain_tile_of_the_table_stands_in_for_a_winner_of_another_family(tmp_path: Path) -> None:
    small = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 128}
    results = with_table(
        tmp_path,
        (config(**small, num_stages=5), 12.0, None),  # fast in screening, but no finalist
        (config(**small, num_stages=4), 14.2, 14.0),
        (config(**small, num_stages=3, SPLIT_K=2), 13.0, 12.9),
        (config(**{**small, "BLOCK_SIZE_K": 256}), 13.1, 13.0),
    )
    assert export(results, "--to", "vllm", "-o", tmp_path, "--predicted") == 0
    served = vllm(tmp_path, "NVIDIA H20", 4096, 7168, 64)
    assert served is not None
    assert (served["BLOCK_SIZE_N"], served["BLOCK_SIZE_K"], served["num_stages"]) == (32, 128, 4)
    document = side(tmp_path / VLLM)
    note, timed = (next(iter(document[part].values()))["64"] for part in ("files", "sizes"))
    assert (note["kind"], note["stage"], note["time_us"], timed["tuned_us"]) == ("from_table", "finals", 14.0, 12.7)
    assert "verified" not in note and note["check"] == "interpreted"
    assert timed["tuned"].startswith("gemm_split_k")


def test_a_table_of_another_run_is_not_used(tmp_path: Path, capsys: Any) -> None:
    results = with_table(tmp_path, (config(), 14.2, 14.0))
    other = edited(results, tmp_path / "other.yaml", configs=lambda found: [{**found[0], "num_warps": 8}])
    assert export(other, "--to", "vllm", "-o", tmp_path) == 1
    err = capsys.readouterr().err
    assert "of another run" in err
    assert f"{tmp_path / 'configs'}/" in err  # which table


@pytest.mark.parametrize("damage", ["columns", "values", "no gzip"])
def test_a_damaged_table_leaves_the_size_out(damage: str, tmp_path: Path, capsys: Any) -> None:
    results = with_table(tmp_path, (config(), 14.2, 14.0))
    path = next((tmp_path / "configs").iterdir())
    table = pd.read_csv(path)
    if damage == "columns":
        table.drop(columns="finals_us").to_csv(path, index=False)
    elif damage == "values":
        table.astype({"BLOCK_SIZE_M": object}).replace({"BLOCK_SIZE_M": {128: "wide"}}).to_csv(path, index=False)
    else:
        path.write_bytes(b"no gzip")
    assert export(results, "--to", "vllm", "-o", tmp_path) == 1
    assert "no other config to take" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["vllm", "triton"])
def test_a_size_with_nothing_that_a_server_can_launch_is_told_how_to_tune_it(
    to: str, tmp_path: Path, capsys: Any
) -> None:
    results = with_table(tmp_path, (config(family="gemm_persistent"), 14.2, 14.0))
    assert export(results, "--to", to, "-o", tmp_path) == 1
    err = capsys.readouterr().err
    assert f"--serve {to}" in err and "--families gemm_tile" in err


def test_for_leaves_out_what_a_device_cannot_hold_and_takes_what_it_can(tmp_path: Path, capsys: Any) -> None:
    assert export(H20, "--to", "vllm", "-o", tmp_path, "--for", "H20,L40S") == 1
    err = capsys.readouterr().err
    # wgmma keeps num_stages tiles: 4 * 128 * (64 + 64) bytes fit into 101376, 3 * 128 * (128 + 128) do, too;
    # 4 * 128 * (64 + 128) do on L40S, whose mma.sync keeps one less.
    assert "shared memory" not in err
    assert export(H20, "--to", "vllm", "-o", tmp_path / "t4", "--for", "h20, T4") == 1
    err = capsys.readouterr().err
    assert "4096x7168x2048_fp8_e4m3_fp8_e4m3_bf16_nt_scale_block" in err
    assert "than T4 has, 65536 bytes" in err
    assert json.loads((tmp_path / "t4" / FILE).read_text())["64"]["num_stages"] == 4


def test_for_counts_the_scales_that_lie_beside_the_tiles(tmp_path: Path, capsys: Any) -> None:
    """4 * 128 * (64 + 64) bytes are all that T4 has."""
    for stages, status in ((4, 0), (5, 1)):
        results = faster(tmp_path / "r.yaml", 64, 9.0, num_stages=stages)
        assert export(results, "--to", "vllm", "-o", tmp_path, "--for", "T4", "--check") == 1
        assert ("T4 has" in capsys.readouterr().err) == bool(status)


def test_an_unknown_device_is_refused_with_the_known_ones(tmp_path: Path, capsys: Any) -> None:
    assert export(H20, "--to", "vllm", "-o", tmp_path, "--for", "H21") == 2
    err = capsys.readouterr().err
    assert "H21" in err
    assert "MI300X" in err


def test_the_device_is_spelt_as_each_consumer_asks_for_it(tmp_path: Path, capsys: Any) -> None:
    name = "AMD Radeon MI50/MI60"
    assert export(H20, "--to", "vllm", "-o", tmp_path, "--device_name", name) == 1
    assert vllm(tmp_path, name, 7168, 2048, 64)
    assert (tmp_path / str(FILE).replace("NVIDIA_H20", "AMD_Radeon_MI50_MI60")).is_file()
    assert export(H20, "--to", "sglang", "-o", tmp_path, "--device_name", name) == 2
    assert "slash" in capsys.readouterr().err
    assert export(H20, "--to", "csv", "-o", tmp_path, "--device_name", name) == 2
    assert "--device_name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "../../evil", "a\x00b", "x" * 300, "a\nb/../c"])
@pytest.mark.parametrize("to", ["vllm", "sglang", "aiter"])
def test_a_device_name_never_leaves_the_folder(name: str, to: str, tmp_path: Path) -> None:
    source = MI300X if to == "aiter" else H20
    key = "arch" if to == "aiter" else "device"
    value = "gfx" + name if to == "aiter" else name
    results = edited(source, tmp_path / "r.yaml", header=lambda head: {**head, key: value})
    export(results, "--to", to, "-o", tmp_path / "a" / "b")
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "r.yaml"]
    assert all(path.is_relative_to(tmp_path / "a" / "b") for path in outside)
    assert all("evil" not in path.name or "/" not in path.name for path in outside)


@pytest.mark.parametrize("there", ["[]", "{", '{"64": 3}', '{"triton_version": {}}', '{"64": {}, "64": {}}', "\xff"])
def test_a_file_that_cannot_be_merged_into_is_refused_and_left_alone(there: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / VLLM).mkdir(parents=True)
    (tmp_path / FILE).write_bytes(there.encode("latin-1"))
    assert export(H20, "--to", "vllm", "-o", tmp_path) == 2
    assert "N=7168" in capsys.readouterr().err
    assert (tmp_path / FILE).read_bytes() == there.encode("latin-1")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}x",
        '{"format_version": 2}',
        '{"format_version": 1, "files": [], "results": {}}',
        '{"format_version": 1, "files": {"f": {"64": {"kind": "tuned", "entry": {}, "time_us": "fast"}}}}',
        '{"format_version": 1, "files": {"f": {"64": {"kind": "tuned", "entry": {}, "odd": 1}}}}',
    ],
)
def test_a_provenance_file_that_does_not_read_is_refused(text: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / VLLM).mkdir(parents=True)
    (tmp_path / VLLM / FILE_NAME).write_text(text)
    assert export(H20, "--to", "vllm", "-o", tmp_path) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_provenance_file_that_lies_about_sizes_does_no_harm(tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    document = side(tmp_path / VLLM)
    body = json.loads((tmp_path / FILE).read_text())
    for key, m, rows_ in (("1", 0, 16), ("64", -5, 64), ("200", 200, "many"), ("4096", 4096, 0)):
        body[key]["BLOCK_SIZE_M"] = rows_
        document["files"][FILE.name][key] |= {"entry": body[key], "m": m}
    (tmp_path / FILE).write_text(json.dumps(body))
    (tmp_path / VLLM / FILE_NAME).write_text(json.dumps(document))
    assert export(H20, "--to", "vllm", "-o", tmp_path) == 1


def test_a_size_list_is_not_a_results_file(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "sizes.yaml").write_text("- {M: 1, N: 2, K: 3}\n")
    assert export(tmp_path / "sizes.yaml", "--to", "vllm", "-o", tmp_path) == 2
    assert "not a results file" in capsys.readouterr().err


def test_triton_config_takes_the_entries(tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    export(MI300X, "--to", "triton", "-o", tmp_path)
    for entry in json.loads((tmp_path / "triton_configs.json").read_text()).values():
        made = triton.Config(**entry)
        assert made.kwargs["matrix_instr_nonkdim"] in (16, 32)
        assert made.num_warps == entry["num_warps"]


def test_a_module_is_written_and_checked_like_the_others(tmp_path: Path, capsys: Any) -> None:
    def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in found if row["dtype_a"] == "bf16"]

    results = edited(H20, tmp_path / "r.yaml", configs=plain, without_config=lambda _: [])
    words = (results, "--to", "module", "-o", tmp_path / "out")
    assert export(*words, "--check") == 1
    assert not (tmp_path / "out").exists()
    assert export(*words) == 0
    assert "def matmul" in (tmp_path / "out" / "tuned_gemm.py").read_text()
    capsys.readouterr()
    assert export(*words, "--check", "--json") == 0
    assert json.loads(capsys.readouterr().out)["sizes"] == 1
    assert export(*words, "--for", "T4") == 2
    assert "--for" in capsys.readouterr().err


@pytest.mark.parametrize("before", [None, "mine\n"])
def test_a_module_of_which_no_row_may_leave_names_each_size_and_writes_nothing(
    before: str | None, tmp_path: Path, capsys: Any
) -> None:
    def unchecked(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "verified": False} for row in found]

    out = tmp_path / "out" / "tuned_gemm.py"
    if before is not None:
        out.parent.mkdir()
        out.write_text(before)
    results = edited(H20, tmp_path / "r.yaml", configs=unchecked, without_config=lambda _: [])
    keys = [row.problem.key for row in read(results).rows]
    for more in ((), ("--check",), ("--json",)):
        assert export(results, "--to", "module", "-o", out.parent, "--verbose", *more) == 1
        told = capsys.readouterr()
        assert f"{len(keys)} of {len(keys)} sizes are NOT in the files" in told.err
        assert all(key in told.err.partition("NOT in")[0] for key in keys)
        assert (out.read_text() if out.exists() else None) == before
    document = json.loads(told.out)
    assert (document["written"], document["differs"], document["sizes"]) == (False, False, 0)
    assert [row["size"] for row in document["left_out"]] == keys
