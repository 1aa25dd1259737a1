"""Whole calls of MoE layers after a run: what is timed, kept and said, with a stand-in for the process on the GPU."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from moe_kernel_source import VLLM
from rich.console import Console
from samples import ROOT, TEMPLATES, device

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Config, Problem
from gemm_tuner.measure import device as devices
from gemm_tuner.measure.device import Machine
from gemm_tuner.moe import kernel_source, whole_call_process
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import entry
from gemm_tuner.report import moe_calls
from gemm_tuner.store import results
from gemm_tuner.system import gpu_lock

H200 = device("sm_90")
# Answers a plan: the time of a configuration is ten times its BLOCK_SIZE_N, in a script that the plan names; the
# layer of one token has a fault, and after FAILS layers the process ends.
CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.languages.scripts import load_script
with open(sys.argv[-1]) as stream:
    plan = json.load(stream)
configs = {family: load_script(file).CONFIGS for family, file in plan["scripts"].items()}
for at, work in enumerate(plan["work"]):
    if at == int(sys.argv[2]):
        sys.exit("the context is lost")
    us = {label: 10.0 * configs[family][name]["BLOCK_SIZE_N"] for label, (family, name) in work["configs"].items()}
    answer = {"fault": "does not fit"} if work["problem"]["M"] == 1 else {"us": us}
    left_out = {label: "no library" for label in sys.argv[3:-1] if us.pop(label, None)}
    print(json.dumps({"problem": problem_from_dict(work["problem"]).key, **answer, "left_out": left_out}))
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in runs in the process of the tests, which has imported what it needs; of a real one only the end and
    what it printed count."""

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        out, err, status = io.StringIO(), io.StringIO(), 0
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
            patch.setattr(sys, "argv", words[1:])
            patch.setattr(sys, "path", [*sys.path])
            try:
                runpy.run_path(words[1])
            except SystemExit as ended:
                err, status = io.StringIO(str(ended)), 1
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    monkeypatch.setattr(moe_calls, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Measured layers of one kernel, at 1, 16 and 64 tokens."""
    (tmp_path / "kernel.py").write_text(VLLM)
    document = yaml.safe_load((ROOT / "tests" / "golden" / "export_moe" / "h200.yaml").read_text())
    row = next(row for row in document["configs"] if row["server"] == "vllm" and row["E"] == 128)
    _, kernel = kernel_source.read(str(tmp_path / "kernel.py"))
    rows = [{**json.loads(json.dumps(row)), "M": m, "kernel_sha": kernel.sha, "BLOCK_SIZE_N": 32} for m in (1, 16, 64)]
    path = tmp_path / "moe.yaml"
    path.write_text(yaml.safe_dump({**document, "configs": rows, "without_config": []}))
    return path


def asked(file: Path) -> list[MoeProblem]:
    _, kernel = kernel_source.read(str(file.parent / "kernel.py"))
    found = [row.problem for row in results.read(file).rows]
    return [replace(one, kernel=kernel) for one in found if isinstance(one, MoeProblem)]


def child(folder: Path, ends_after: int = 9, *without: str) -> tuple[str, ...]:
    """The stand-in says keys as the real one does."""
    path = folder / "child.py"
    path.write_text(CHILD)
    return sys.executable, str(path), str(ROOT), str(ends_after), *without


def said(file: Path, current: dict[Problem, Config], ends_after: int = 9, *without: str) -> str:
    some = moe_calls.layers(file, asked(file), current, H200)
    out = io.StringIO()
    console = Console(file=out, width=200)
    moe_calls.report(file, some, TEMPLATES, H200, 0, {}, console, console, child(file.parent, ends_after, *without))
    return out.getvalue()


def test_tuned_default_and_current_are_timed_and_kept(file: Path) -> None:
    sixteen = next(one for one in asked(file) if one.M == 16)
    current = PlainConfig("vllm_moe", tuple(entry(16, 128, 64, 1, 4, 3).items()))
    text = said(file, {sixteen: current})
    assert "does not fit" in text and "3 layers" in text
    kept = {key: entry["us"] for key, entry in moe_calls.read(file).items()}
    assert kept[sixteen.key] == {"tuned": 320.0, "default": 640.0, "current": 1280.0} and len(kept) == 2
    row = next(line for line in text.splitlines() if " 16 " in line)
    assert row.split()[-4:] == ["320.00", "640.00", "1280.00", "2.000"]


TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
OURS = {
    "own_moe": {**TILE, "num_warps": 4, "num_stages": 3, "PROGRAMS_PER_SM": 1, "SWAP_AB": 0, "W_BY_TMA": 1,
                "down_BLOCK_SIZE_N": 64, "down_num_stages": 2},
    "cute_moe": {**TILE, "CLUSTER_M": 2, "PINGPONG": 0, "down_BLOCK_SIZE_M": 64, "down_PINGPONG": 1},
}  # fmt: skip


def beside(file: Path, label: str, ours: PlainConfig) -> list[str]:
    """The cells of the row of 16 tokens in the table of benchmarks, after whole calls with ``ours``, which that row
    alone names, were timed, kept and shown under ``label``."""
    document = yaml.safe_load(file.read_text())
    for row in document["configs"]:
        row["derived"] = {f"{label}_kernel": ours.name, f"{label}_kernel_us": 20.0} if row["M"] == 16 else {}
    file.write_text(yaml.safe_dump(document))
    text = said(file, {})
    kept = {key.split("_M")[1].split("_")[0]: entry for key, entry in moe_calls.read(file).items()}
    assert kept["16"]["us"] == {"tuned": 320.0, "default": 640.0, label: 1280.0}
    assert kept["16"]["configs"][label] == ours.name and label not in kept["64"]["us"]
    shown = next(line for line in text.splitlines() if " 16 " in line)
    assert shown.split()[-4:] == ["320.00", "640.00", "1280.00", "2.000"] and f"{label} us" in text
    words = [sys.executable, str(ROOT / "benchmarks" / "moe_table.py"), str(file)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return next(line for line in done.stdout.splitlines() if line.startswith("| 16 |")).split("|")


@pytest.mark.parametrize("family", OURS)
def test_our_kernel_beside_a_servers_is_timed_and_kept(here: None, file: Path, family: str) -> None:
    """A row names its configuration, of two tiles here; rows without one have no time of it."""
    ours = PlainConfig(family, tuple(OURS[family].items()))
    cells = beside(file, "own", ours)
    assert [one.strip() for one in cells[12:16]] == ["20.00", "1.025", "1280.00", "0.250"]


def test_ours_with_the_activation_in_its_first_gemm_is_timed_in_whole_calls(here: None, file: Path) -> None:
    """It is a rival of its own, beside a server's row and beside one of ours."""
    fields = {**OURS["cute_moe"], "FUSED_ACTIVATION": 1}
    fused = PlainConfig("cute_moe", tuple(fields.items()))
    cells = beside(file, "fused", fused)
    assert [one.strip() for one in cells[12:18]] == ["", "", "", "", "1280.00", "0.250"]


def test_what_is_kept_is_not_timed_again_and_what_is_lost_is_said(file: Path) -> None:
    first = said(file, {}, ends_after=2)
    assert "exit status 1" in first and "the context is lost" in first
    assert len(moe_calls.read(file)) == 1
    again = said(file, {})
    assert "2 layers" in again and len(moe_calls.read(file)) == 2
    document = json.loads(moe_calls.path_of(file).read_text())
    other = next(iter(document.values()))
    other["configs"]["tuned"] = "another"
    moe_calls.path_of(file).write_text(json.dumps(document))
    assert "2 layers" in said(file, {})


def test_layers_whose_winners_are_in_two_languages_have_a_script_of_each(here: None, tmp_path: Path) -> None:
    layer = MoeProblem("own", 16, 8, 64, 128, 2)
    tile = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    triton = {**tile, "num_warps": 4, "num_stages": 2, "PROGRAMS_PER_SM": 0, "SWAP_AB": 0, "W_BY_TMA": 0}
    of_cute = {**tile, "BLOCK_SIZE_N": 96, "CLUSTER_M": 1, "PINGPONG": 0}
    configs = PlainConfig("own_moe", tuple(triton.items())), PlainConfig("cute_moe", tuple(of_cute.items()))
    layers = [
        moe_calls.Layer(one, {moe_calls.TUNED: config})
        for one, config in zip((layer, layer.at(64)), configs, strict=True)
    ]
    rows = [{**layer.row(), **of_cute, "family": "cute_moe", "source": "measured", "verified": True}]
    rows[0]["substitute"] = {"family": "own_moe", **triton, "median_us": 9.0, "verified": True}
    results.write_rows(tmp_path / "own.yaml", {"source": "measured"}, rows, [])
    (beside,) = moe_calls.layers(tmp_path / "own.yaml", [layer], {}, H200)
    assert beside.configs == {"tuned": configs[1], "own": configs[0]}
    times, faults = moe_calls.timed(layers, TEMPLATES, H200, 0, {}, child(tmp_path))
    assert faults == []
    assert times == {layer.key: {"tuned": 320.0}, layer.at(64).key: {"tuned": 960.0}}


def test_a_label_whose_script_cannot_be_loaded_costs_the_others_nothing(here: None, file: Path) -> None:
    """It is said once, and timed by the next run that can."""
    sixteen = next(one for one in asked(file) if one.M == 16)
    text = said(file, {}, 9, "default")
    assert text.count("without default: no library") == 1 and "320.00" in text and "640.00" not in text
    assert moe_calls.read(file)[sixteen.key]["us"] == {"tuned": 320.0}
    again = said(file, {})
    assert "3 layers" in again and "640.00" in again
    current = PlainConfig("vllm_moe", tuple(entry(16, 128, 64, 1, 4, 3).items()))
    nothing = said(file, {sixteen: current}, 9, *moe_calls.LABELS)
    assert moe_calls.read(file)[sixteen.key]["us"]["default"] == 640.0 and "without current" in nothing


def test_the_process_loads_what_it_can(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("CONFIGS = {}")
    (tmp_path / "absent.py").write_text("import a_library_that_is_not_here")
    files = {"absent": str(tmp_path / "absent.py"), "here": str(tmp_path / "here.py")}
    scripts, absent = whole_call_process.loaded(files)
    assert scripts["here"].CONFIGS == {} and list(absent) == ["absent"]
    assert "a_library_that_is_not_here" in absent["absent"]


def test_only_measured_rows_are_timed(file: Path) -> None:
    document = yaml.safe_load(file.read_text())
    document["header"]["source"] = "replayed"
    document["configs"] = [{**row, "source": "replayed"} for row in document["configs"]]
    file.write_text(yaml.safe_dump(document))
    assert moe_calls.layers(file, asked(file), {}, H200) == []


def test_the_table_has_whole_calls_beside_the_gemms(here: None, file: Path) -> None:
    said(file, {})
    words = [sys.executable, str(ROOT / "benchmarks" / "moe_table.py"), str(file)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    row = next(line for line in done.stdout.splitlines() if line.startswith("| 16 |"))
    cells = [one.strip() for one in row.split("|")[2:]]
    assert cells[0] == "25.00" and cells[5:9] == ["640.00", "", "320.00", "2.000"]
    assert "geometric mean, call, default / tuned: 2.000 over 2 M" in done.stdout


def test_times_of_another_configuration_are_not_shown_as_those_of_this_one(here: None, file: Path) -> None:
    said(file, {})
    document = json.loads(moe_calls.path_of(file).read_text())
    for kept in document.values():
        kept["configs"]["tuned"] = "another"
    moe_calls.path_of(file).write_text(json.dumps(document))
    words = [sys.executable, str(ROOT / "benchmarks" / "moe_table.py"), str(file)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert "geometric mean, call" not in done.stdout and "| 640.00 |" not in done.stdout
    lost = said(file, {}, ends_after=0)
    assert "the context is lost" in lost and "320.00" not in lost


GPU = {"id": 0, "uuid": "GPU-moe-calls", "name": "NVIDIA H200", "arch": "sm_90"}


def test_the_gpu_is_locked_while_calls_are_timed(
    here: None, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locks").mkdir()
    monkeypatch.setenv(gpu_lock.LOCK_DIR, str(tmp_path / "locks"))
    out = io.StringIO()
    console, some = Console(file=out, width=200), moe_calls.layers(file, asked(file), {}, H200)
    words = file, some, TEMPLATES, H200, 0, {}, console, console
    with gpu_lock.held(["GPU-moe-calls"]):
        moe_calls.report(*words, child(file.parent), gpu_lock.held(["GPU-moe-calls"], 0.0))
    assert "is in use by process" in out.getvalue() and moe_calls.read(file) == {}
    moe_calls.report(*words, child(file.parent), gpu_lock.held(["GPU-moe-calls"], 0.0))
    assert len(moe_calls.read(file)) == 2


def test_calls_are_timed_on_a_gpu_of_the_model_that_was_tuned_on(monkeypatch: pytest.MonkeyPatch) -> None:
    header = {"device": "NVIDIA H200", "arch": "sm_90"}
    monkeypatch.setattr(devices, "look", lambda: Machine((GPU,), {}, ""))
    assert moe_calls.lock_of(header, 0) == "GPU-moe-calls"
    assert moe_calls.lock_of(header, 1) is None
    assert moe_calls.lock_of({**header, "device": "NVIDIA H100"}, 0) is None


def test_what_the_process_printed_last_may_be_cut_off(file: Path) -> None:
    (file.parent / "cut.py").write_text('print(\'{"problem": "moe\')')
    some = moe_calls.layers(file, asked(file), {}, H200)
    assert moe_calls.timed(some, TEMPLATES, H200, 0, {}, (sys.executable, str(file.parent / "cut.py"))) == ({}, [])


def test_a_recorded_routing_that_changes_is_timed_again(
    here: None, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    document = yaml.safe_load(file.read_text())
    rows = [{**row, "routing": ["ids.npy"]} for row in document["configs"]]
    file.write_text(yaml.safe_dump({**document, "configs": rows}))
    (file.parent / "ids.npy").write_bytes(b"one")
    assert "3 layers" in said(file, {}) and "1 layers" in said(file, {})
    (file.parent / "ids.npy").write_bytes(b"another")
    assert "3 layers" in said(file, {})
