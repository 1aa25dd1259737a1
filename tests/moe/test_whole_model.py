"""Dense and MoE layers of one model: one size file, one command, one results file, and each server's files of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import quick_yaml
from export_samples import GOLDEN, export, files
from moe_kernel_source import VLLM
from samples import ROOT

from gemm_tuner.cli import commands, main
from gemm_tuner.cli.commands import moe
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import GRID
from gemm_tuner.store import results
from gemm_tuner.store.results_file import ResultsFile
from gemm_tuner.store.sizes import load_file, sizes_of

MOE = ROOT / "tests" / "golden" / "export_moe"
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A dense model's layers, with experts, in block-scaled fp8."""
    path = tmp_path / "config.json"
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    row = json.loads((ROOT / "tests" / "data" / "size_sources" / "llama_config.json").read_text())
    path.write_text(json.dumps({**row, **EXPERTS, "model_type": "qwen3_moe", "quantization_config": quantised}))
    return path


def asked(*words: object) -> list[MoeProblem]:
    return moe.problems(commands.build_parser("moe").parse([*map(str, words), "--dry_run"]))


def test_a_size_file_has_both_and_gives_the_layers_again(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes, kernel = tmp_path / "sizes.yaml", tmp_path / "fused_moe.py"
    kernel.write_text(VLLM)
    assert main.main(["sizes", "--from", str(config), "--tp", "2", "--moe", "-o", str(sizes)]) == 0
    assert "; 0 left out" in capsys.readouterr().err
    entries = sizes_of(load_file(str(sizes)), Defaults()).entries
    kinds = [one.problem.kind for one in entries]
    assert kinds.count("moe") == len(GRID) and kinds.count("gemm") >= 4
    assert main.main(["--gemm_size_file", str(sizes), "--dry_run"]) == 2
    told = capsys.readouterr().err
    assert "sizes.yaml" in told and "moe" in told and "--from" in told
    found = asked("--from", sizes, "--kernel_from", kernel)
    assert found == asked("--from", config, "--tp", "2", "--kernel_from", kernel)
    assert found[0].N == 128 and found[0].kernel is not None
    parsed = commands.build_parser("moe").parse(["--from", str(sizes), "--dry_run"])
    assert [one.problem for one in moe.dense_sizes(parsed)] == [
        one.problem for one in entries if isinstance(one.problem, GemmProblem)
    ]


def test_one_command_shows_both(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["moe", "--from", str(config), "--tp", "2", "--m", "64", "--arch", "sm_90", "--dry_run"]
    assert main.main([*words, "--dense"]) == 0
    both = capsys.readouterr().out
    assert "scale_block" in both and "moe_own_E8_N128" in both
    assert main.main(words) == 0
    assert "scale_block" not in capsys.readouterr().out


def test_families_of_a_kind_leave_the_other_kind_its_own(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[tuple[str, tuple[str, ...]]] = []
    monkeypatch.setattr(
        main, "run", lambda flags, _, entries, *__: run.append((entries[0].problem.kind, flags.families)) or 0
    )
    words = ["moe", "--from", str(config), "--dense", "--m", "64", "--serve", "vllm", "--dry_run", "--families"]
    for families, of_gemms, of_layers in (
        ("gemm_tile", ("gemm_tile",), ()),
        ("vllm_moe", (), ("vllm_moe",)),
        ("gemm_tile,vllm_moe,own_moe", ("gemm_tile",), ("vllm_moe", "own_moe")),
        ("no_such_family,vllm_moe", ("no_such_family",), ("vllm_moe",)),  # which the first run refuses
    ):
        run.clear()
        assert main.main([*words, families]) == 0
        assert run == [("gemm", of_gemms), ("moe", of_layers)]


def test_a_configuration_is_explained_for_the_sizes_of_its_kind(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["moe", "--from", str(config), "--dense", "--m", "64", "--arch", "sm_90", "--explain"]
    of_layer = "own_moe_BLOCK_SIZE_M64_BLOCK_SIZE_N64_BLOCK_SIZE_K64_GROUP_SIZE_M1_num_warps4_num_stages2"
    for name, has, has_not in (
        (f"{of_layer}_PROGRAMS_PER_SM0_SWAP_AB0_W_BY_TMA0", "moe_own", "scale_block"),
        ("gemm_tile_BM64_BN64_BK64_GM1_SK1_W4_S2", "scale_block", "moe_own"),
    ):
        assert main.main([*words, name]) == 0
        told = capsys.readouterr().out
        assert has in told and has_not not in told
    assert main.main([*words, "BLOCK_SIZE_M=64"]) == 0
    told = capsys.readouterr().out
    assert "scale_block" in told and "moe_own" in told


def test_what_the_size_file_says_is_not_said_again(config: Path, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.yaml"
    main.main(["sizes", "--from", str(config), "--m", "1", "-o", str(sizes)])
    refused = [
        ["--tp", "2"],
        ["--N", "64"],
        ["--m", "1"],
        ["--fp8", "fp8_e4m3_fnuz"],
        ["--group_size", "32"],
        ["--bias"],
    ]
    for words, what in (([], "no MoE layer"), *((words, words[0]) for words in refused)):
        with pytest.raises(UserError, match=what):
            asked("--from", sizes, *words)


def test_numbers_of_tokens_are_those_asked_for(config: Path, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.yaml"
    main.main(["sizes", "--from", str(config), "--m", "1,64", "--moe", "-o", str(sizes)])
    entries = sizes_of(load_file(str(sizes)), Defaults()).entries
    for kind in ("moe", "gemm"):
        assert {one.problem.m for one in entries if one.problem.kind == kind} == {1, 64}
    assert [one.M for one in asked("--from", config, "--m", "1,64")] == [1, 64]


@pytest.mark.parametrize(
    ("words", "flags", "expected"),
    [
        (("--dtype", "bf16"), ("--dtype", "bf16"), ("bf16", "none", "none")),
        (("--dtype", "fp8", "--scaling", "row_col"), ("--per_channel",), ("fp8_w8a8", "channel", "row_col")),
        (("--dtype", "fp8", "--scaling", "tensor"), ("--dtype", "fp8_w8a8"), ("fp8_w8a8", "tensor", "tensor")),
        (("--dtype", "fp8", "--scaling", "block"), ("--block_shape", "128,128"), ("fp8_w8a8", "block", "block")),
    ],
)
def test_types_that_are_asked_for_are_of_dense_layers_and_experts(
    words: tuple[str, ...], flags: tuple[str, ...], expected: tuple[str, ...], config: Path, tmp_path: Path
) -> None:
    """Also in place of those that no kernel multiplies; by a size file and by one command alike."""
    mxfp4 = {"quant_method": "mxfp4"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": mxfp4}))
    sizes = tmp_path / "sizes.yaml"
    assert main.main(["sizes", "--from", str(config), "--m", "64", "--moe", *words, "-o", str(sizes)]) == 0
    by_file = commands.build_parser("moe").parse(["--from", str(sizes)])
    by_flags = commands.build_parser("moe").parse(["--from", str(config), "--m", "64", "--dense", *flags])
    assert moe.problems(by_file) == moe.problems(by_flags)
    dense = [one.problem for one in moe.dense_sizes(by_flags)]
    assert [one.problem for one in moe.dense_sizes(by_file)] == dense
    (layer,) = moe.problems(by_flags)
    (qkv, *_) = (one for one in dense if isinstance(one, GemmProblem))
    assert (layer.dtype, layer.scaling, qkv.scaling) == expected


def test_dense_layers_and_experts_have_the_scales_and_the_encoding_in_common(config: Path, tmp_path: Path) -> None:
    """Those of the model where a flag says its type alone, and those of a flag that says scales alone."""
    words = ["--from", str(config), "--m", "64", "--dense", "--dtype", "fp8_w8a8", "--arch", "gfx942"]
    by_flags = commands.build_parser("moe").parse(words)
    sizes = tmp_path / "sizes.yaml"
    scaling = ["--scaling", "row_col", "--fp8", "fp8_e4m3_fnuz"]
    assert main.main(["sizes", "--from", str(config), "--m", "64", "--moe", *scaling, "-o", str(sizes)]) == 0
    by_file = commands.build_parser("moe").parse(["--from", str(sizes)])
    for parsed, expected in ((by_flags, ("block", "block")), (by_file, ("channel", "row_col"))):
        (layer,) = moe.problems(parsed)
        (qkv, *_) = (one.problem for one in moe.dense_sizes(parsed) if isinstance(one.problem, GemmProblem))
        assert (layer.scaling, qkv.scaling) == expected
        assert layer.fp8 == qkv.dtype_a == "fp8_e4m3_fnuz"


def test_where_dense_layers_cannot_be_tuned_experts_can(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": awq}))
    for words in (["sizes", "--moe"], ["moe", "--dense", "--dry_run"]):
        assert main.main([*words, "--from", str(config)]) == 2
        told = capsys.readouterr().err
        assert "'awq'" in told and "--dense" in told and "--scaling" not in told and len(told.splitlines()) == 1
    assert asked("--from", config, "--m", 64)[0].dtype == "int4_w4a16"


def test_types_that_one_of_both_has_not_are_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["sizes", "--from", str(config), "--moe", "--dtype", "int8", "--scaling", "row_col"]) == 2
    assert "int8 is no type of fused MoE layers" in capsys.readouterr().err
    words = ["moe", "--from", str(config), "--dense", "--block_shape", "64,64", "--dry_run"]
    assert main.main(words) == 2
    assert "64,64" in capsys.readouterr().err


def test_groups_of_a_config_may_be_replaced(config: Path) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": awq}))
    for words, size in (((), 64), (("--group_size", 32), 32)):
        one = asked("--from", config, "--m", 64, "--serve", "vllm", *words)[0]
        assert (one.dtype, one.block_shape, one.zero_points) == ("int4_w4a16", (0, size), True)


def test_a_results_file_holds_both_and_each_server_gets_its_own(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    shutil.copy(MOE / "h200.yaml", path)
    dense = quick_yaml.load((GOLDEN / "h20.yaml").read_text())
    layers = quick_yaml.load(path.read_text())
    path.write_text(quick_yaml.dump({**layers, "configs": [*layers["configs"], *dense["configs"]]}))
    export(path, "--to", "vllm-moe", "-o", tmp_path / "moe")
    assert files(tmp_path / "moe") == files(MOE / "vllm-moe" / "h200")
    export(path, "--to", "vllm", "-o", tmp_path / "dense", "--device_name", "NVIDIA H20")
    assert files(tmp_path / "dense") == files(GOLDEN / "vllm" / "h20") != {}


def test_a_module_has_the_gemms_of_a_whole_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = quick_yaml.load((MOE / "h200.yaml").read_text())
    dense = quick_yaml.load((ROOT / "results" / "tuned" / "nvidia_h200_fp8_block.yaml").read_text())["configs"][:2]
    lines = []
    for rows in (dense, [*layers["configs"], *dense]):
        path, out = tmp_path / f"{len(rows)}.yaml", tmp_path / str(len(rows))
        path.write_text(quick_yaml.dump({**layers, "configs": rows, "without_config": []}))
        assert export(path, "--to", "module", "-o", out) == 0
        lines.append({line for line in (out / "tuned_gemm.py").read_text().splitlines() if "gemm_" in line})
    assert "kind moe" in capsys.readouterr().err
    assert lines[0] and all("custom_op" in line for line in lines[0] - lines[1])  # whose name has the text's hash


def test_the_results_of_a_whole_model_are_updated(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What dense rows have for a server is not asked of fused layers."""
    path = tmp_path / "all.yaml"
    layers = quick_yaml.load((MOE / "h200.yaml").read_text())
    dense = quick_yaml.load((ROOT / "results" / "tuned" / "nvidia_h200_fp8_block.yaml").read_text())
    served = [row for row in dense["configs"] if "served" in row][:1]
    path.write_text(quick_yaml.dump({**layers, "configs": [*layers["configs"], *served]}))
    words = ["moe", "--from", str(config), "--m", "64", "--arch", "sm_90", "--update", str(path), "--dry_run"]
    assert main.main(words) == 0, capsys.readouterr().err


def test_rows_of_one_kind_stay_when_the_other_is_tuned(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    shutil.copy(MOE / "h200.yaml", path)
    before = results.read(path)
    dense = results.read(GOLDEN / "h20.yaml").rows[0].problem
    header = results.Header(**{**before.header, "date": "2026-12-01T00:00:00Z"})  # type: ignore[arg-type]
    file = ResultsFile(path, [dense])
    file.record_outcome(dense, None, "nothing was tried")
    file.write(header)
    after = results.read(path)
    assert [row.problem for row in after.rows] == [row.problem for row in before.rows]
    assert dense in [problem for problem, _ in after.without_config]
