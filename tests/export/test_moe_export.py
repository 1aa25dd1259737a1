"""Files of fused MoE layers, byte for byte and through each server's look-up rule."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from export_samples import edited, export, files, rows, side
from samples import ROOT

from gemm_tuner.cli import main as cli
from gemm_tuner.moe.servers import GRID

GOLDEN = ROOT / "tests" / "golden" / "export_moe"
H200, TMA, MI300X = GOLDEN / "h200.yaml", GOLDEN / "h200_tma.yaml", GOLDEN / "mi300x.yaml"
VLLM = Path("vllm/model_executor/layers/fused_moe/configs")
SGLANG = Path("sglang/srt/layers/moe/moe_runner/triton_utils/configs/triton_3_6_0")
QWEN = "E=128,N=768,device_name=NVIDIA_H200.json"
DEEPSEEK = "E=256,N=256,device_name=NVIDIA_H200_141GB_HBM3,dtype=fp8_w8a8,block_shape=[128, 128]"
TILE = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


@pytest.mark.parametrize(
    ("to", "results"),
    [("vllm-moe", H200), ("vllm-moe", MI300X), ("sglang-moe", H200), ("sglang-moe", TMA), ("aiter-moe", MI300X)],
    ids=lambda value: value if isinstance(value, str) else value.stem,
)
def test_files_are_the_golden_ones_byte_for_byte(to: str, results: Path, tmp_path: Path) -> None:
    export(results, "--to", to, "-o", tmp_path)
    assert files(tmp_path) == files(GOLDEN / to / results.stem) != {}


def nearest(body: dict[str, Any], m: int) -> Any:
    """vLLM's and SGLang's rule: without the key of the version, the key nearest to M."""
    keys = [int(key) for key in body if key != "triton_version"]
    return body[str(min(keys, key=lambda key: abs(key - m)))]


def test_every_tuned_size_gets_its_configuration(tmp_path: Path) -> None:
    export(H200, "--to", "vllm-moe", "-o", tmp_path)
    body = json.loads((tmp_path / VLLM / QWEN).read_text())
    assert body["triton_version"] == "3.6.0" and [*map(int, list(body)[1:])] == list(GRID)
    tuned = [row for row in rows(H200) if row["server"] == "vllm" and row["E"] == 128 and row["verified"] is True]
    assert len(tuned) == 3
    for row in tuned:
        assert nearest(body, row["M"]) == {key: row[key] for key in TILE}
    # Not verified: the default of vLLM stands there.
    assert tuple(nearest(body, 512).values()) == (64, 128, 64, 1, 8, 3)


def test_sizes_of_another_server_are_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of vLLM's sizes has no config and one is not verified: SGLang's files lack neither."""
    assert export(H200, "--to", "sglang-moe", "-o", tmp_path) == 0
    assert "2 of 2 sizes in 2 files" in capsys.readouterr().out
    assert export(H200, "--to", "vllm-moe", "-o", tmp_path) == 1
    assert "2 of 7 sizes are NOT in the files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("to", "results", "server"),
    [("vllm-moe", H200, "vllm"), ("sglang-moe", H200, "sglang"), ("aiter-moe", MI300X, "vllm")],
)
def test_what_was_tuned_in_our_own_kernel_is_for_no_server(
    to: str, results: Path, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ours(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        some = [row for row in found if row["server"] == "vllm" and row["E"] == found[0]["E"]]
        more = {"server": "own", "family": "own_moe", "kernel_sha": "", "PROGRAMS_PER_SM": 0, "SWAP_AB": 0}
        return [{**row, **more} for row in some]

    alone = edited(results, tmp_path / "own.yaml", configs=ours, without_config=lambda _: [])
    assert export(alone, "--to", to, "-o", tmp_path / "out") == 1
    told = [line for line in capsys.readouterr().err.splitlines() if "own kernel" in line]
    assert len(told) == 1 and f"--kernel_from {server}=PATH" in told[0]
    assert not (tmp_path / "out").exists() or files(tmp_path / "out") == {}


def test_of_two_servers_that_were_tuned_neither_is_to_be_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for to in ("vllm-moe", "sglang-moe"):
        export(H200, "--to", to, "-o", tmp_path)
        told = capsys.readouterr().err
        assert "kernel, which" in told and "--kernel_from" not in told


@pytest.mark.parametrize(("to", "results"), [("vllm-moe", H200), ("sglang-moe", H200), ("aiter-moe", MI300X)])
def test_a_row_with_another_kernels_configuration_is_refused(
    to: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def swapped(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        fields = {"family": "own_moe", "PROGRAMS_PER_SM": 0, "SWAP_AB": 0, "W_BY_TMA": 0}
        return [{**row, **fields} for row in found]

    wrong = edited(results, tmp_path / "wrong.yaml", configs=swapped, without_config=lambda _: [])
    assert export(wrong, "--to", to, "-o", tmp_path / "out") == 1
    assert "own_moe" in capsys.readouterr().err and files(tmp_path / "out") == {}


def test_our_own_kernel_beside_a_servers_changes_no_file(tmp_path: Path) -> None:
    def beside(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "derived": {"own_kernel": "own_moe_BLOCK_SIZE_M64", "own_kernel_us": 1.0}} for row in found]

    export(edited(H200, tmp_path / "beside.yaml", configs=beside), "--to", "vllm-moe", "-o", tmp_path / "out")
    assert files(tmp_path / "out") == files(GOLDEN / "vllm-moe" / H200.stem)


def test_a_layer_of_one_rank_comes_before_a_faster_one_of_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is faster only because most rows are other ranks'."""

    def of_many(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        (row,) = (row for row in found if (row["server"], row["E"], row["M"]) == ("vllm", 128, 64))
        many = {**deepcopy(row), "global_E": 1024, "num_warps": 8, "median_us": row["median_us"] / 2}
        return [many, *found]

    export(edited(H200, tmp_path / "many.yaml", configs=of_many), "--to", "vllm-moe", "-o", tmp_path / "out")
    assert files(tmp_path / "out") == files(GOLDEN / "vllm-moe" / H200.stem)
    assert "shares the key 64 with" in capsys.readouterr().err


def test_sglangs_two_files_have_one_block_of_rows(tmp_path: Path) -> None:
    export(H200, "--to", "sglang-moe", "-o", tmp_path)
    up, down = (json.loads((tmp_path / SGLANG / f"{DEEPSEEK}{suffix}.json").read_text()) for suffix in ("", "_down"))
    assert list(up) == list(down) == [str(m) for m in GRID]
    assert all(set(entry) == set(TILE) for entry in (*up.values(), *down.values()))
    assert [entry["BLOCK_SIZE_M"] for entry in up.values()] == [entry["BLOCK_SIZE_M"] for entry in down.values()]
    assert tuple(up["16"].values()) == (16, 128, 128, 1, 4, 3) and tuple(down["16"].values()) == (16, 64, 128, 16, 4, 4)


def test_sglang_takes_tma_out_of_each_file_as_its_look_up_does(tmp_path: Path) -> None:
    """By ``pop("USE_TMA", False)``; versions that do so for the down-projection alone would launch with the key."""
    export(TMA, "--to", "sglang-moe", "-o", tmp_path)
    up, down = (json.loads((tmp_path / SGLANG / f"{DEEPSEEK}{suffix}.json").read_text()) for suffix in ("", "_down"))
    by_tma = {m: (up[m].pop("USE_TMA", False), down[m].pop("USE_TMA", False)) for m in ("16", "1024")}
    assert by_tma == {"16": (False, True), "1024": (True, True)}
    assert "USE_TMA" not in json.loads((tmp_path / SGLANG / f"{DEEPSEEK}.json").read_text())["16"]
    assert set(up["16"]) == set(down["16"]) == set(TILE)


def test_aiters_bucket_is_tuned_for_its_largest_size(tmp_path: Path) -> None:
    assert export(MI300X, "--to", "aiter-moe", "-o", tmp_path) == 0
    body = json.loads((tmp_path / "aiter/ops/triton/configs/moe/gfx942-MOE-FP8_W8A8.json").read_text())
    assert list(body) == ["small_M", "medium_M", "large_M"]
    by_m = {row["M"]: row for row in rows(MI300X)}
    assert body["small_M"]["BLOCK_SIZE_M"] == by_m[255]["BLOCK_SIZE_M"] == 64
    assert body["large_M"]["BLOCK_SIZE_M"] == by_m[2048]["BLOCK_SIZE_M"] == 128
    assert export(H200, "--to", "aiter-moe", "-o", tmp_path / "other") == 1
    assert files(tmp_path / "other") == {}


def test_files_are_merged_and_a_slower_entry_gives_way(tmp_path: Path) -> None:
    slower = edited(H200, tmp_path / "slower.yaml", configs=lambda found: [
        {**row, "median_us": row["median_us"] * 2, "BLOCK_SIZE_N": 256} for row in found
    ])  # fmt: skip
    out = tmp_path / "out"
    export(slower, "--to", "vllm-moe", "-o", out)
    path = out / VLLM / QWEN
    body = json.loads(path.read_text())
    body["20000"] = {**body["4096"], "num_stages": 5}  # edited by hand
    path.write_text(json.dumps(body))
    export(H200, "--to", "vllm-moe", "-o", out)
    merged = json.loads(path.read_text())
    assert merged["1"]["BLOCK_SIZE_N"] == 32 and merged["20000"]["num_stages"] == 5
    assert next(iter(merged)) == "triton_version" and list(merged)[-1] == "20000"
    export(slower, "--to", "vllm-moe", "-o", out)
    assert json.loads(path.read_text()) == merged
    note = side(path.parent)["files"][QWEN]["1"]
    assert (note["time_us"], note["default_us"], note["verified"]) == (20.5, 25.0, True)


def test_serve_check_reads_as_the_servers_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(H200, "--to", "vllm-moe", "-o", tmp_path)
    capsys.readouterr()
    assert cli.main(["serve-check", str(tmp_path), "--as", "vllm-moe", "--m", "1,70,9000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    qwen = next(file for file in document["files"] if "E=128" in file["label"])
    served = {one["m"]: (one["key"], one["config"]["BLOCK_SIZE_M"], one["default_us"]) for one in qwen["servings"]}
    assert served == {1: ("1", 16, 25.0), 70: ("64", 16, None), 9000: ("4096", 128, None)}
    for name, body in {
        "E=1,N=1,device_name=NVIDIA_H200.json": {"one": {}},
        "E=1,N=1,device_name=NVIDIA H20.json": {"1": {}},
        "E=1,N=1,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128, 128].json": {"1": {}},
    }.items():
        folder = tmp_path / str(len(name))
        folder.mkdir()
        (folder / name).write_text(json.dumps(body))
        assert cli.main(["serve-check", str(folder), "--as", "vllm-moe"]) == 1


def test_serve_check_looks_into_sglangs_newest_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(H200, "--to", "sglang-moe", "-o", tmp_path)
    older = tmp_path / SGLANG.parent / "triton_3_5_1"
    older.mkdir()
    (older / f"{DEEPSEEK}.json").write_text("{}")
    capsys.readouterr()
    assert cli.main(["serve-check", str(tmp_path), "--as", "sglang-moe", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [Path(file["path"]).parent.name for file in document["files"]] == ["triton_3_6_0"] * 2
    assert document["not_read"] == ["1 files of older Triton versions"]


@pytest.mark.parametrize(("to", "server"), [("vllm-moe", "vllm"), ("sglang-moe", "sglang")])
def test_a_file_of_another_layer_of_its_name_stays(
    to: str, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names tell E and N: Qwen3-30B-A3B and, on two ranks, Qwen3-235B-A22B share one."""

    def some(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        mine = [row for row in found if row["server"] == server and row["verified"] is True]
        return [row for row in mine if row["E"] == mine[0]["E"]]

    def of_another(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "topk": 4, "BLOCK_SIZE_N": 32} for row in some(found)]

    first, other = (
        edited(H200, tmp_path / f"{ours.__name__}.yaml", configs=ours, without_config=lambda _: [])
        for ours in (some, of_another)
    )
    assert export(first, "--to", to, "-o", tmp_path / "out") == 0
    before = files(tmp_path / "out")
    capsys.readouterr()
    assert export(other, "--to", to, "-o", tmp_path / "out") == 1
    told = capsys.readouterr().err
    assert " top 8" in told and "--overwrite" in told
    assert files(tmp_path / "out") == before
    assert export(first, "--to", to, "-o", tmp_path / "out") == 0 and files(tmp_path / "out") == before
    assert export(other, "--to", to, "-o", tmp_path / "out", "--overwrite") == 0
    assert export(other, "--to", to, "-o", tmp_path / "alone") == 0
    assert files(tmp_path / "out") == files(tmp_path / "alone") != before
    assert export(first, "--to", to, "-o", tmp_path / "out") == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"dtype": "fp8_w8a8", "scaling": "tensor"}, {"dtype": "fp8_w8a8", "scaling": "channel"}),
        ({"dtype": "int8_w8a16", "scaling": "channel"},
         {"dtype": "int8_w8a16", "scaling": "group", "block_shape": [0, 64]}),
        ({"dtype": "int4_w4a16", "scaling": "group", "block_shape": [0, 32]},
         {"dtype": "int4_w4a16", "scaling": "group", "block_shape": [0, 64]}),
    ],
)  # fmt: skip
def test_a_file_of_other_scales_stays(
    one: dict[str, Any], other: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM's names tell blocks alone; integers in groups have another kernel, whose entries have a key more."""

    def scaled(found: list[dict[str, Any]], of: dict[str, Any]) -> list[dict[str, Any]]:
        some = [row for row in found if row["server"] == "vllm" and row["E"] == 128 and row["verified"] is True]
        return [deepcopy({**row, "out": "bf16", "block_shape": [0, 0], **of}) for row in some]

    exported = []
    for of in (one, other):
        path = tmp_path / f"{len(exported)}.yaml"
        results = edited(H200, path, configs=partial(scaled, of=of), without_config=lambda _: [])
        exported.append(export(results, "--to", "vllm-moe", "-o", tmp_path / "out"))
    assert exported == [0, 1]
    assert "--overwrite" in capsys.readouterr().err


def test_other_consumers_refuse_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(H200, "--to", "vllm", "-o", tmp_path) == 2
    told = capsys.readouterr().err
    assert "kind moe" in told and "--to vllm-moe" in told
    assert export(ROOT / "tests" / "golden" / "export" / "h20.yaml", "--to", "vllm-moe", "-o", tmp_path) == 2
    assert files(tmp_path) == {}


def test_integers_in_groups_have_what_their_launcher_needs(tmp_path: Path) -> None:
    """vLLM's launcher of that kernel adds no SPLIT_K; where it launches in CUDA, the entry leaves tiles to it."""
    of_groups = {"dtype": "int4_w4a16", "out": "bf16", "scaling": "group", "block_shape": [0, 64]}
    results = edited(H200, tmp_path / "int4.yaml", configs=lambda found: [
        {**row, **json.loads(json.dumps(of_groups))} for row in found if row["server"] == "vllm" and row["E"] == 128
    ])  # fmt: skip
    export(results, "--to", "vllm-moe", "-o", tmp_path / "out")
    (path,) = (tmp_path / "out" / VLLM).glob("E=*.json")
    assert path.name == "E=128,N=768,device_name=NVIDIA_H200,dtype=int4_w4a16.json"
    body = json.loads(path.read_text())
    tuned = next(row for row in rows(H200) if row["server"] == "vllm" and row["E"] == 128 and row["verified"] is True)
    assert body[str(tuned["M"])] == {**{key: tuned[key] for key in TILE}, "SPLIT_K": 1}
    assert body["24"] == {"BLOCK_SIZE_M": 32, "GROUP_SIZE_M": 1, "SPLIT_K": 1}


def test_sglang_names_a_file_of_4_bit_integers_by_bytes(tmp_path: Path) -> None:
    """Its look-up takes the extent of w2 as stored, as in its own E=384,N=128 file of Kimi-K2, of which a rank has 256
    columns; of 8 bits each is a byte."""
    for dtype, n in (("int4_w4a16", 128), ("int8_w8a16", 256)):
        of_groups = json.dumps({"dtype": dtype, "out": "bf16", "scaling": "group", "block_shape": [0, 64]})
        results = edited(H200, tmp_path / f"{dtype}.yaml", configs=lambda found, of=of_groups: [
            {**row, **json.loads(of)} for row in found if row["server"] == "sglang"
        ])  # fmt: skip
        export(results, "--to", "sglang-moe", "-o", tmp_path / dtype)
        paths = sorted((tmp_path / dtype / SGLANG).glob("E=*.json"))
        stem = f"E=256,N={n},device_name=NVIDIA_H200_141GB_HBM3,dtype={dtype}"
        assert [path.name for path in paths] == [f"{stem}.json", f"{stem}_down.json"]


def test_both_gemms_of_a_type_without_blocks_have_its_default(tmp_path: Path) -> None:
    of_tensors = json.dumps({"dtype": "fp8_w8a8", "out": "bf16", "scaling": "tensor", "block_shape": [0, 0]})
    results = edited(H200, tmp_path / "fp8.yaml", configs=lambda found: [
        {**row, **json.loads(of_tensors)} for row in found if row["server"] == "sglang"
    ])  # fmt: skip
    export(results, "--to", "sglang-moe", "-o", tmp_path / "out")
    up, down = (json.loads(path.read_text()) for path in sorted((tmp_path / "out" / SGLANG).glob("E=*.json")))
    assert tuple(up["128"].values()) == tuple(down["128"].values()) == (64, 128, 128, 1, 4, 4)
