"""``tune_gemm.py moe``: what it asks for, and how bad input is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from moe_kernel_source import GROUPED, VLLM, sglang
from samples import device

from gemm_tuner.cli import commands, main, moe_layer
from gemm_tuner.cli.commands import moe
from gemm_tuner.consumers.moe import fault_of_name
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.measure.device import Machine
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import GRID, entry
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.store.sizes import SizeEntry

DATA = Path(__file__).resolve().parents[1] / "data" / "moe"
FLAGS = ("--E", "8", "--N", "64", "--K", "128", "--topk", "2")


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "fused_moe.py"
    path.write_text(VLLM)
    return str(path)


def asked(*words: str) -> list[MoeProblem]:
    return moe.problems(commands.build_parser("moe").parse(list(words)))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main.main(["moe", *words])
    text = capsys.readouterr().err.strip()
    assert len(text.splitlines()) == 1
    return status, text


def test_a_model_on_eight_ranks_gives_vllms_grid(kernel: str) -> None:
    found = asked("--from", str(DATA / "deepseek_v3.json"), "--tp", "8", "--kernel_from", kernel)
    assert tuple(one.M for one in found) == GRID
    one = found[0]
    assert (one.E, one.N, one.K, one.topk, one.dtype, one.block_shape) == (256, 256, 7168, 8, "fp8_w8a8", (128, 128))
    assert one.kernel is not None and one.kernel_sha == one.kernel.sha
    flags = ("--E", "256", "--N", "256", "--K", "7168", "--topk", "8", "--block_shape", "128,128")
    assert asked(*flags, "--kernel_from", f"vllm={kernel}") == found
    experts = asked("--from", str(DATA / "deepseek_v3.json"), "--tp", "8", "--enable_expert_parallel", "--dry_run")
    assert (experts[0].E, experts[0].N) == (32, 2048)


def test_without_a_servers_kernel_there_is_ours(kernel: str) -> None:
    alone = asked(*FLAGS, "--m", "5,64")
    assert [(one.server, one.M, one.kernel, one.beside) for one in alone] == [
        ("own", 5, None, False),
        ("own", 64, None, False),
    ]
    assert WORKLOAD.own_space(alone, device("sm_90")).families.keys() == {"own_moe", "cute_moe"}
    for more, arch in (("--dtype", "fp8_w8a8"), "sm_90"), (("--dtype", "fp16"), "gfx942"), (("--bias",), "sm_80"):
        found = asked(*FLAGS, "--m", "5", *more)
        assert WORKLOAD.own_space(found, device(arch)).families.keys() == {"own_moe"}


def test_ours_is_beside_a_servers_kernel_unless_it_is_served(kernel: str) -> None:
    """What stands beside it is not part of a problem's identity."""
    source = Path(kernel).with_name("of_groups.py")
    source.write_text(VLLM + GROUPED)
    words = (*FLAGS, "--m", "5", "--kernel_from", str(source))
    of_groups = ("--dtype", "int4_w4a16", "--group_size", "32")
    for more, families in (
        ((), {"vllm_moe", "own_moe"}),
        (("--dtype", "fp8_w8a8"), {"vllm_moe", "own_moe"}),
        (("--serve", "vllm"), {"vllm_moe"}),
        (("--dtype", "int8_w8a16"), {"vllm_moe", "own_moe"}),
        (of_groups, {"vllm_moe", "own_moe"}),
    ):
        found = asked(*words, *more)
        assert WORKLOAD.own_space(found, device("gfx942")).families.keys() == families
        assert {one.server for one in found} == {"vllm"}
    (beside,), (served,) = asked(*words), asked(*words, "--serve", "vllm")
    assert beside == served and beside.row() == served.row()
    assert problem_from_dict(beside.to_dict()).to_dict() == beside.to_dict() != served.to_dict()


def test_a_server_that_changes_the_space_is_not_said_to_change_nothing(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--serve and --kernel_from are about the layers here: the run, which knows them of GEMMs, is not told."""
    given: dict[str, str] = {}
    monkeypatch.setattr(main, "run", lambda arguments, *_: given.update(arguments.given) or 0)
    words = (*FLAGS, "--m", "5", "--kernel_from", kernel, "--serve", "vllm", "--compile_only")
    assert main.main(["moe", *words]) == 0
    assert "compile_only" in given and not {"serve", "kernel_from"} & given.keys()


def test_our_family_alone_beside_a_server_is_refused(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The server's rows would hold its default, untuned."""
    words = (*FLAGS, "--m", "5", "--kernel_from", kernel, "--families")
    status, text = told(capsys, *words, "own_moe")
    assert status == 2 and "--families" in text and "vllm_moe,own_moe" in text and "--kernel_from" in text
    status, text = told(capsys, *words, "cute_moe")
    assert status == 2 and "vllm_moe,cute_moe" in text
    for families in ("own_moe,vllm_moe", "vllm_moe", "vllm_moe,cute_moe"):
        assert {one.server for one in asked(*words, families)} == {"vllm"}
    assert {one.server for one in asked(*FLAGS, "--m", "5", "--families", "own_moe")} == {"own"}


def test_tokens_are_routed_over_the_experts_of_all_ranks(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--from", str(DATA / "deepseek_v3.json"), "--tp", "8", "--enable_expert_parallel", "--dry_run")
    (one,) = asked(*words, "--m", "16", "--global_experts", "256")
    assert (one.E, one.global_E, one.routed_E) == (32, 256, 256)
    read = problem_from_dict(one.row())
    assert read == one and isinstance(read, MoeProblem) and read.key == one.key
    status, text = told(capsys, *words, "--global_experts", "32")
    assert status == 2 and "--global_experts above" in text


def test_a_servers_tuned_file_needs_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(capsys, *FLAGS, "--current", "E=8,N=64,device_name=NVIDIA_H200.json")
    assert status == 2 and "--current" in text and "--kernel_from" in text


def test_a_problem_travels_with_its_kernel(kernel: str) -> None:
    (one,) = asked(*FLAGS, "--m", "5", "--routing", "zipf:1.0", "--kernel_from", kernel)
    again = problem_from_dict(one.to_dict())
    assert isinstance(again, MoeProblem) and again == one and again.kernel == one.kernel
    read = problem_from_dict(one.row())
    assert read == one and isinstance(read, MoeProblem) and read.kernel is None


def test_keys_tell_problems_apart(kernel: str) -> None:
    more = ((), ("--dtype", "fp16"), ("--bias",), ("--activation", "gelu"), ("--routing", "balanced"), ("--seeds", "2"),
            ("--dtype", "fp8_w8a8"), ("--per_channel",), ("--block_shape", "64,64"), ("--dtype", "int8_w8a16"),
            ("--block_shape", "32,32"), ("--per_channel", "--fp8", "fp8_e4m3_fnuz"))  # fmt: skip
    kernel_of_groups = Path(kernel).with_name("of_groups.py")
    kernel_of_groups.write_text(VLLM + GROUPED)
    grouped = ("--group_size", "32", "--m", "5", "--kernel_from", str(kernel_of_groups), "--dtype")
    others = (("int4_w4a16",), ("int8_w8a16",), ("int4_w4a16", "--zero_points"), ("int4_w4a16", "--group_size", "64"))
    assert len({asked(*FLAGS, *grouped, *one)[0].key for one in others}) == len(others)
    keys = {asked(*FLAGS, "--m", "5", *one, "--kernel_from", kernel)[0].key for one in more}
    assert len(keys) == len(more)


def test_a_dry_run_shows_the_funnel(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a model whose type is named; tests/moe/test_moe_models.py has the spaces of all."""
    words = [
        "--from",
        str(DATA / "gpt_oss_120b.json"),
        "--dtype",
        "bf16",
        "--bias",
        "--m",
        "64",
        "--arch",
        "sm_90",
        "--serve",
        "vllm",
    ]
    assert main.main(["moe", *words, "--dry_run"]) == 0
    funnel = capsys.readouterr().out
    assert "1920" in funnel.split("(the whole space)")[1].splitlines()[0]
    assert "pads_too_much" in funnel


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "--E"),
        (("--E", "8", "--N", "64", "--K", "128"), "--topk"),
        ((*FLAGS, "--tp", "2"), "--tp"),
        (("--from", str(DATA / "mixtral_8x7b.json"), "--tp", "3"), "14336"),
        (("--from", str(DATA / "qwen3_235b_a22b.json"), "--tp", "8", "--block_shape", "128,128"), "192"),
        (("--from", str(DATA / "gpt_oss_120b.json")), "mxfp4"),
        (("--from", "no_such_config.json"), "no_such_config.json"),
        (("--E", "4", "--N", "64", "--K", "128", "--topk", "5"), "topk 5"),
        ((*FLAGS[:-2], "--global_experts", "16", "--topk", "17"), "--global_experts"),
        ((*FLAGS, "--activation", "sine"), "sine"),
        ((*FLAGS, "--routing", "skewed"), "zipf:1.0"),
        ((*FLAGS, "--routing", "topk_ids_layer3_idx0.pt"), "numpy.save"),
        ((*FLAGS, "--routing", "absent.npy"), "absent.npy: cannot be read: No such file"),
        ((*FLAGS, "--dtype", "int4_w4a16"), "--group_size"),
        ((*FLAGS, "--dtype", "int4_w4a16", "--group_size", "48"), "group size 48"),
        (("--E", "4", "--N", "30", "--K", "45", "--topk", "2", "--dtype", "int4_w4a16", "--group_size", "15"), "K 45"),
        ((*FLAGS, "--dtype", "int4_w4a16", "--group_size", "32", "--bias"), "bias"),
        ((*FLAGS, "--dtype", "fp8_w8a8", "--group_size", "32"), "--group_size"),
        ((*FLAGS, "--zero_points"), "--zero_points"),
        ((*FLAGS, "--dtype", "int8_w8a16", "--zero_points"), "--zero_points"),
        ((*FLAGS, "--enable_expert_parallel"), "--enable_expert_parallel"),
        ((*FLAGS, "--dtype", "bf16", "--per_channel"), "no scales"),
        ((*FLAGS, "--block_shape", "128"), "128,128"),
        ((*FLAGS, "--block_shape", "128x128"), "128,128"),
        ((*FLAGS, "--m", "0"), "0"),
        ((*FLAGS, "--m", "16-64"), "1,16,64"),
        ((*FLAGS, "--m", "1,,2"), "1,16,64"),
        ((*FLAGS, "--m", "64,99999999999"), "99999999999 tokens"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(words: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(capsys, *words, "--dry_run")
    assert status == 2 and what in text


def test_a_run_needs_a_kernel_of_a_known_version(
    kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {
        "no kernel of vllm": None,
        "lacks top_k": VLLM.replace("top_k", "chosen"),
        "has SPARSE": VLLM.replace(
            "HAS_BIAS: tl.constexpr, SWAP", "HAS_BIAS: tl.constexpr, SPARSE: tl.constexpr, SWAP"
        ),
        "defines no fused_moe_kernel": "import triton\n",
        "defines no fused_moe_kernel_gptq_awq": VLLM,
        "no Python source": "def :",
        "uses 'FAR'": VLLM.replace("FAR = tl.constexpr(0.0)", ""),
        "is not there": "",
    }
    for what, source in changes.items():
        path = tmp_path / "other.py"
        path.unlink(missing_ok=True)
        if source:
            path.write_text(source)
        given = ("--kernel_from", str(path)) if source is not None else ("--serve", "vllm")
        of_groups = ("--dtype", "int4_w4a16", "--group_size", "32") if "gptq" in what else ()
        status, text = told(capsys, *FLAGS, *of_groups, *given)
        assert (status, what in text) == (2, True), text
        assert ("vLLM 0.33" in text) == (what in ("lacks top_k", "has SPARSE"))


def test_another_servers_kernel_is_told_apart(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = told(capsys, *FLAGS, "--kernel_from", f"sglang={kernel}")
    assert status == 2 and "lacks a_desc" in text and f"--kernel_from vllm={kernel}" in text


def test_fp8_is_in_the_encoding_of_the_gpu_that_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without AMD's driver nothing is looked at, which takes seconds."""
    words = (*FLAGS, "--m", "16", "--dtype", "fp8_w8a8", "--dry_run")
    monkeypatch.setattr(moe_layer.devices, "look", lambda: Machine(({"id": 0, "arch": "gfx942"},), {}, ""))
    monkeypatch.setattr(moe_layer, "AMD_DRIVER", tmp_path / "kfd")
    assert asked(*words)[0].fp8 == "fp8_e4m3"
    (tmp_path / "kfd").touch()
    assert asked(*words)[0].fp8 == "fp8_e4m3_fnuz"
    for more in (("--arch", "gfx950"), ("--fp8", "fp8_e4m3")):
        assert asked(*words, *more)[0].fp8 == "fp8_e4m3"


def test_numbers_of_tokens_that_another_kernel_serves_are_left_out_of_the_grid(
    kernel: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 4 bits vLLM launches its kernel in Triton above 6 rows an expert; those that are asked for stay."""
    run: list[int] = []
    monkeypatch.setattr(
        main, "run", lambda arguments, shown, entries, *_: run.extend(one.problem.M for one in entries) or 0
    )
    Path(kernel).write_text(VLLM + GROUPED)
    words = ["moe", *FLAGS, "--dtype", "int4_w4a16", "--group_size", "32", "--kernel_from", kernel, "--no_whole_calls"]
    few = [m for m in GRID if 2 * m <= 6 * 8]
    for more, expected in (
        (("--arch", "sm_90"), [m for m in GRID if m not in few]),
        (("--arch", "gfx942"), list(GRID)),
        (("--arch", "sm_90", "--m", "16,64"), [16, 64]),
        (("--arch", "sm_90", "--E", "4096"), list(GRID)),  # none would be left
    ):
        run.clear()
        main.main([*words, *more])
        assert run == expected
        told = capsys.readouterr().err
        assert (", ".join(map(str, few)) in told) == (len(expected) not in (2, len(GRID)))


def test_a_recording_says_of_whose_gpu_it_is(kernel: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of NVIDIA's, played back where there is one of AMD's: small numbers of tokens have another kernel."""
    run: list[int] = []
    monkeypatch.setattr(
        main, "run", lambda arguments, shown, entries, *_: run.extend(one.problem.M for one in entries) or 0
    )
    monkeypatch.setattr(moe_layer, "AMD_DRIVER", tmp_path)
    Path(kernel).write_text(VLLM + GROUPED)
    words = ["moe", *FLAGS, "--dtype", "int4_w4a16", "--group_size", "32", "--kernel_from", kernel, "--no_whole_calls"]
    main.main([*words, "--profiler", "replay", "--replay", str(DATA.parent / "h200_nsys_recording")])
    assert run == [m for m in GRID if 2 * m > 6 * 8]


def test_of_two_servers_that_is_named_which_has_the_kernel_in_cuda() -> None:
    (few, many) = asked(*FLAGS, "--dtype", "int4_w4a16", "--group_size", "32", "--m", "1,4096", "--dry_run")
    found = [replace(one, server=server) for server in ("sglang", "vllm") for one in (few, many)]
    some, line = moe_layer.launched_in_triton(found, "sm_90")
    assert [(one.server, one.M) for one in some] == [("sglang", 1), ("sglang", 4096), ("vllm", 4096)]
    assert "M of 1 left out: vllm " in line


def test_sglangs_file_of_a_layer_with_its_shared_expert_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of DeepSeek-V3 it asks for 257 experts, unless it is told not to."""
    monkeypatch.setattr(main, "run", lambda *_: 0)
    for server, model, more, is_said in (
        ("sglang", "deepseek_v3", (), True),
        ("vllm", "deepseek_v3", (), False),
        ("sglang", "deepseek_v3", ("--E", "257", "--topk", "9"), False),
        ("sglang", "qwen3_235b_a22b", (), False),
    ):
        words = ["moe", "--from", str(DATA / f"{model}.json"), "--serve", server, "--m", "64", "--dry_run", *more]
        assert main.main(words) == 0
        assert ("--E 257 --topk 9" in capsys.readouterr().err) == is_said


def test_recorded_routing_is_read_as_data(kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, array, what in (
        ("ids", np.zeros((4, 2), dtype=np.int64), ""),
        ("high", np.full((4, 2), 8), "ids from 8 to 8"),
        ("wide", np.zeros((4, 3), dtype=np.int32), "(4, 3)"),
        ("objects", np.array([[{}, {}]], dtype=object), "cannot be read"),
    ):
        path = tmp_path / f"{name}.npy"
        np.save(path, array, allow_pickle=True)
        words = [*FLAGS, "--routing", str(path), "--dry_run", "--arch", "sm_90", "--m", "16"]
        assert main.main(["moe", *words]) == (2 if what else 0)
        assert what in capsys.readouterr().err


def test_whole_calls_are_for_runs_that_tune_on_this_machine() -> None:
    def tunes_here(*words: str) -> bool:
        return moe.tunes_here(commands.build_parser("moe").parse([*FLAGS, *words]))

    assert tunes_here() and tunes_here("--fresh")
    others = ("--cluster ray", "--compile_only", "--dry_run", "--compare_wo_tuning", "--profiler replay")
    assert not any(tunes_here(*words.split()) for words in others)


def test_a_size_file_has_layers_of_one_kernel(kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = {"kind": "moe", "server": "vllm", "M": 16, "E": 8, "N": 64, "K": 128, "topk": 2}
    groups = {**layer, "dtype": "int4_w4a16", "scaling": "group", "block_shape": [0, 32]}
    path = tmp_path / "sizes.yaml"
    path.write_text(yaml.safe_dump([layer, groups]))
    status, text = told(capsys, "--from", str(path), "--kernel_from", kernel)
    assert status == 2 and "integers in groups beside others" in text


def test_ours_is_beside_all_layers_of_a_size_file(kernel: str, tmp_path: Path) -> None:
    layer = {"kind": "moe", "server": "vllm", "M": 16, "E": 8, "N": 64, "K": 128, "topk": 2}
    path = tmp_path / "sizes.yaml"
    path.write_text(yaml.safe_dump([layer, {**layer, "dtype": "int8_w8a16", "scaling": "channel"}]))
    found = asked("--from", str(path), "--kernel_from", kernel)
    assert {one.dtype: one.beside for one in found} == {"bf16": True, "int8_w8a16": True}


def test_a_tuned_file_of_another_layer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*FLAGS, "--m", "16", "--arch", "sm_90", "--dry_run", "--serve", "vllm"]
    entry = "BLOCK_SIZE_M: 16, BLOCK_SIZE_N: 64, BLOCK_SIZE_K: 64, GROUP_SIZE_M: 1, num_warps: 4, num_stages: 3"
    body = json.dumps({"16": yaml.safe_load(f"{{{entry}}}")})
    wrong = (
        ("E=16,N=64,device_name=NVIDIA_H200.json", "E"),
        ("E=8,N=128,device_name=NVIDIA_H200.json", "N"),
        ("E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json", "dtype, block_shape"),
        ("E=8,N=64,device_name=NVIDIA_H200_down.json", "_down"),
        ("E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8_down.json", "dtype, _down"),
    )
    for name, what in wrong:
        (tmp_path / name).write_text(body)
        status, text = told(capsys, *words, "--current", str(tmp_path / name))
        assert (status, f"by its name: {what};" in text) == (2, True), text
    for name in ("E=8,N=64,device_name=NVIDIA_H100.json", "mine.json"):
        (tmp_path / name).write_text(body)
        assert main.main(["moe", *words, "--current", str(tmp_path / name)]) == 0
        capsys.readouterr()


def test_a_tuned_file_is_read_for_the_gpu_that_is_tuned_for(tmp_path: Path) -> None:
    """So that an entry is, without TMA, a configuration of the space."""
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"16": dict(entry(16, 64, 64, 1, 4, 2))}))
    for arch, fields in (("gfx942", {}), ("sm_90", {"USE_TMA": 0})):
        words = (*FLAGS, "--m", "16", "--serve", "sglang", "--dry_run", "--current", str(path), "--arch", arch)
        arguments = commands.build_parser("moe").parse(words)
        (config,) = moe.current(arguments, moe.problems(arguments)).values()
        assert config.to_dict() == {"family": "sglang_moe", **entry(16, 64, 64, 1, 4, 2), **fields}


def test_sglangs_file_names_tell_scales_per_channel_and_the_down_gemm(kernel: str) -> None:
    """vLLM's name does not tell a scale per channel."""
    fp8 = (*FLAGS, "--m", "5", "--kernel_from", kernel, "--dtype", "fp8_w8a8")
    stem = "E=8,N=64,device_name=NVIDIA_H100,dtype=fp8_w8a8"
    for words, own, other in (((), "", ",per_channel_quant=True"), (("--per_channel",), ",per_channel_quant=True", "")):
        sglangs = replace(asked(*fp8, *words)[0], server="sglang")
        assert fault_of_name(f"{stem}{own}.json", sglangs) == ""
        assert "per_channel_quant" in fault_of_name(f"{stem}{other}.json", sglangs)
        assert "_down" in fault_of_name(f"{stem}{own}_down.json", sglangs)
    assert fault_of_name(f"{stem}.json", asked(*fp8, "--per_channel")[0]) == ""


def test_a_tuned_file_of_the_other_server_is_refused_where_its_name_tells() -> None:
    """By the space in block_shape; of two servers --current is given twice, in their order."""
    (layer,) = asked("--E", "8", "--N", "128", "--K", "128", "--topk", "2", "--block_shape", "64,64", "--m", "16")
    stem = "E=8,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape="
    for server, own, other in (("vllm", "[64,64]", "[64, 64]"), ("sglang", "[64, 64]", "[64,64]")):
        assert fault_of_name(f"{stem}{own}.json", replace(layer, server=server)) == ""
        assert "block_shape" in fault_of_name(f"{stem}{other}.json", replace(layer, server=server))


GROUPS = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
ZEROS = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}


def test_flags_replace_what_a_config_says_and_no_kernel_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the errors say."""
    of_model = json.loads((DATA / "mixtral_8x7b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**of_model, "hidden_act": "sine", "torch_dtype": "float32"}))
    source, activation = ("--from", str(path), "--m", "64", "--dry_run"), ("--activation", "gelu")
    for words, what in (((), "--dtype"), (("--dtype", "bf16"), "--activation"), (activation, "--dtype")):
        status, text = told(capsys, *source, *words)
        assert status == 2 and what in text
    for dtype in ("bf16", "fp8_w8a8"):
        (one,) = asked(*source, *activation, "--dtype", dtype)
        assert (one.activation, one.dtype, one.out) == ("gelu", dtype, "bf16")
    path.write_text(json.dumps({**of_model, "torch_dtype": "float32"}))
    assert main.main(["sizes", "--from", str(path), "--moe", "--dtype", "bf16", "--m", "64"]) == 0


@pytest.mark.parametrize(
    ("quantised", "words", "expected"),
    [
        (GROUPS, ("--zero_points",), ("int4_w4a16", (0, 128), True)),
        (GROUPS, ("--dtype", "int4_w4a16", "--zero_points"), ("int4_w4a16", (0, 128), True)),
        (GROUPS, ("--dtype", "int8_w8a16", "--zero_points"), ("int8_w8a16", (0, 128), True)),
        (GROUPS, ("--group_size", "64"), ("int4_w4a16", (0, 64), False)),
        (ZEROS, (), ("int4_w4a16", (0, 64), True)),
        (ZEROS, ("--dtype", "bf16"), ("bf16", (0, 0), False)),
        (ZEROS, ("--dtype", "fp8_w8a8"), ("fp8_w8a8", (0, 0), False)),
        (ZEROS, ("--dtype", "int8_w8a16"), ("int8_w8a16", (0, 0), False)),
    ],
)
def test_flags_about_groups_change_what_a_config_says(
    quantised: dict[str, object], words: tuple[str, ...], expected: object, tmp_path: Path
) -> None:
    of_model = json.loads((DATA / "mixtral_8x7b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**of_model, "quantization_config": quantised}))
    (tmp_path / "kernel.py").write_text(VLLM + GROUPED)
    source = ("--from", str(tmp_path / "config.json"), "--m", "64", "--kernel_from", str(tmp_path / "kernel.py"))
    (one,) = asked(*source, *words)
    assert (one.dtype, one.block_shape, one.zero_points) == expected


RESULTS = Path(__file__).resolve().parents[1] / "golden" / "export_moe" / "h200.yaml"


def test_a_results_file_is_timed_and_checked_with_its_servers_kernels(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row with its own configuration, server and routing."""
    found: list[SizeEntry] = []
    monkeypatch.setattr(main, "run", lambda arguments, shown, entries, *_: found.extend(entries) or 0)
    other = tmp_path / "other.py"
    other.write_text(sglang())
    both = ("--kernel_from", f"vllm={kernel}", "--kernel_from", f"sglang={other}")
    for task in ("--benchmark", "--compare_wo_tuning"):
        found.clear()
        assert main.main(["moe", "--from", str(RESULTS), *both, task]) == 0
        rows = [row for row in yaml.safe_load(RESULTS.read_text())["configs"] if row["kind"] == "moe"]
        assert [one.config.name for one in found if one.config] == [row["name"] for row in rows]
        layers = [one.problem for one in found if isinstance(one.problem, MoeProblem)]
        assert [(one.server, one.M, one.routing) for one in layers] == [
            (row["server"], row["M"], tuple(row["routing"])) for row in rows
        ]
        assert all(one.kernel is not None and one.kernel_sha == one.kernel.sha for one in layers)
    for words, what in (
        ((str(RESULTS), "--kernel_from", f"vllm={kernel}"), "no kernel of sglang"),
        ((str(RESULTS), *both, "--routing", "balanced"), "--routing"),
        ((str(RESULTS), *both, "--m", "64"), "--m"),
        ((str(DATA / "mixtral_8x7b.json"), *both), "a results file"),
    ):
        status, text = told(capsys, "--from", *words, "--benchmark")
        assert status == 2 and what in text


@pytest.mark.grid
def test_what_a_results_file_has_of_our_kernel_is_checked_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ours = {**dict(entry(16, 32, 32, 1, 4, 2)), "PROGRAMS_PER_SM": 0, "SWAP_AB": 0, "W_BY_TMA": 0}
    config = PlainConfig("own_moe", tuple(ours.items()))
    (layer,) = asked("--E", "4", "--N", "32", "--K", "32", "--topk", "2", "--m", "16")
    row = {**layer.row(), **config.to_dict(), "name": config.name, "source": "measured", "verified": True}
    header = yaml.safe_load(RESULTS.read_text())
    (tmp_path / "moe.yaml").write_text(yaml.safe_dump({**header, "configs": [{**row, "median_us": 1.0}],
                                                       "without_config": []}))  # fmt: skip
    assert main.main(["moe", "--from", "moe.yaml", "--compare_wo_tuning", "--arch", "sm_90"]) == 0
    assert "1 of 1 configurations are right" in capsys.readouterr().err
