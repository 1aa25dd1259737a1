"""Configurations that hang or crash, in compile and launch, cost themselves alone."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_factory import expected, factory, numbered, supplied, taking
from hang_clock import LIMIT_S, NOTES, HangClock
from samples import ROOT

import gemm_tuner as gt
from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import UserError
from gemm_tuner.surface import trials

FAULTS = ["raises", "crashes", "exits", "hangs"]
CONFIGS = [{"how": how, "at": at} for how in FAULTS for at in ("build", "launch")] + [{"how": "right"}]


def test_each_fault_costs_its_configuration_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOTES, str(tmp_path / "hangs"))
    monkeypatch.setattr(trials, "time", HangClock(tmp_path / "hangs"))
    monkeypatch.setenv(trials.COUNT, "1")  # the clock of one that hangs is all workers'
    tuner = gt.AutoTuner.from_kernel(partial(factory, 7), CONFIGS).set_profile_args(timeout=LIMIT_S, rep=2, warmup=1)
    result = tuner.run(cache_results=False, output_dir=tmp_path / "tuned", isolate=True)
    assert result.config == {"how": "right"} and result.kernel() == 7
    found = {(row["how"], row.get("at", "")): (row["status"], row["reason"]) for row in result.table}
    assert {at: status for at, (status, _) in found.items()} == {
        ("right", ""): "ok",
        ("raises", "build"): "compile_error", ("raises", "launch"): "launch_error",
        ("crashes", "build"): "crashed", ("crashes", "launch"): "crashed",
        ("exits", "build"): "crashed", ("exits", "launch"): "crashed",
        ("hangs", "build"): "compile_timeout", ("hangs", "launch"): "timeout",
    }  # fmt: skip
    assert "too many threads" in found["raises", "build"][1] and "SIGSEGV" in found["crashes", "launch"][1]
    assert all("a larger timeout allows more" in found["hangs", at][1] for at in ("build", "launch"))
    (log,) = tmp_path.glob("tuned/*/tune.log")
    assert "hangs" in log.read_text("utf-8"), "and the log in the run's folder says so"


SCRIPT = """
import sys
import gemm_tuner as gt
from gemm_tuner.surface import trials

CONFIGS = [{"block": 0}, {"block": 2}]

@gt.autotune(configs=CONFIGS, isolate=True, rep=2, warmup=1, output_dir=None, cache_results=False, timeout=1000)
def divide(size, block=1):
    quotient = size // block
    def kernel():
        return quotient
    kernel.params, kernel.out_idx = [], None
    return kernel

print("began")
print(divide(8)(), list(divide.results.values())[0].table[1]["reason"])
"""


def test_of_a_script_only_the_function_is_run_again(tmp_path: Path) -> None:
    """And no module of the working folder takes the place of the standard library's."""
    path, elsewhere = tmp_path / "script.py", tmp_path / "elsewhere"
    path.write_text(SCRIPT, encoding="utf-8")
    elsewhere.mkdir()
    (elsewhere / "queue.py").write_text("raise SystemExit('this is mine')")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environ, cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "began" and done.stdout.count("began") == 1
    assert done.stdout.splitlines()[1].startswith("4 ZeroDivisionError")


def test_kernels_are_launched_elsewhere_with_inputs_of_a_program() -> None:
    """One that no other process has is named, and kernels are then only built there."""
    configs = [{"how": "crashes", "at": "launch"}, {"how": "right"}]
    run: dict[str, Any] = {"cache_results": False, "output_dir": None, "isolate": True}

    def tuner(program: Any, tried: Any) -> gt.AutoTuner:
        made = gt.AutoTuner.from_kernel(taking, tried)
        return made.set_profile_args(rep=2, warmup=1, supply_prog=program)

    result = tuner(supplied, configs).run(**run)
    assert {row["how"]: row["status"] for row in result.table} == {"crashes": "crashed", "right": "ok"}
    with pytest.warns(UserWarning, match="does not launch them there: supply_prog is not at the top level"):
        tuner(lambda: [7], configs[1:]).run(**run)
    with pytest.warns(UserWarning, match="does not launch them there: supply_prog is not what its module holds"):
        result = tuner(partial(numbered, 7), configs[1:]).run(**run)
    assert [row["status"] for row in result.table] == ["ok"], "what a partial binds is not lost on the way"


def test_what_another_process_cannot_build_is_named() -> None:
    run: dict[str, Any] = {"cache_results": False, "output_dir": None, "isolate": True}

    def local(block: int = 1) -> Any:
        return lambda: block

    with pytest.raises(UserError, match=r"local: is not at the top level of a module.*isolate=False"):
        gt.AutoTuner.from_kernel(local, [{"block": 1}]).run(**run)
    with pytest.raises(UserError, match=r"factory: has arguments that are no plain values"):
        gt.AutoTuner.from_kernel(partial(factory, object()), [{"how": "right"}]).run(**run)


def test_an_external_profiler_runs_candidates_in_other_processes() -> None:
    configs = [{"how": how} for how in ("raises", "wrong", "right")]
    made = gt.AutoTuner.from_kernel(partial(factory, 7), configs).set_profile_args(ref_prog=expected, rep=3, warmup=1)
    result = made.run(cache_results=False, output_dir=None, profiler="clock")
    assert result.config == {"how": "right"} and result.kernel() == 7
    assert {row["how"]: row["status"] for row in result.table} == {
        "raises": "compile_error", "wrong": "wrong", "right": "ok",
    }  # fmt: skip
    assert {row["verified"] for row in result.table if row["status"] == "ok"} == {"true"}


def test_a_triton_kernel_is_compiled_elsewhere_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its best baked in as source. The interpreter takes any number of warps, the compiler powers of two."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernels = importlib.import_module("interpreted_kernels")
    del sys.modules["interpreted_kernels"]
    configs = [{"BLOCK": 64, "num_warps": warps} for warps in (3, 4)]
    run: dict[str, Any] = {"rep": 2, "output_dir": tmp_path, "cache_results": False, "isolate": True}
    kernel = gt.autotune(configs, ["n"], **run)(kernels.scale)
    x, out = torch.arange(64.0), torch.empty(64)
    kernel[(1,)](x, out, 64, 2.0)
    (result,) = kernel.results.values()
    assert {row["num_warps"]: row["status"] for row in result.table} == {3: "compile_error", 4: "ok"}
    assert torch.equal(out, x * 2)
    assert main(["export", str(next(tmp_path.glob("*/tuned.yaml"))), "--to", "source", "--unverified"]) == 0
    baked = "@triton.autotune(configs=[triton.Config({'BLOCK': 64}, num_warps=4)], key=[])"
    assert baked in capsys.readouterr().out.splitlines()


def test_source_to_bake_in_has_the_pre_hook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton calls it before every launch: without it a kernel may add to what it should find cleared."""
    import triton

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernels = importlib.import_module("interpreted_kernels")
    del sys.modules["interpreted_kernels"]

    def cleared(arguments: dict[str, Any]) -> None:
        arguments["out"].zero_()

    configs = [triton.Config({"BLOCK": 64}, num_warps=4, pre_hook=cleared)]
    kernel = gt.autotune(configs, ["n"], rep=2, output_dir=tmp_path, cache_results=False)(kernels.scale)
    kernel[(1,)](torch.arange(64.0), torch.empty(64), 64, 2.0)
    assert main(["export", str(next(tmp_path.glob("*/tuned.yaml"))), "--to", "source", "--unverified"]) == 0
    assert ", pre_hook=cleared)], key=[])" in capsys.readouterr().out


def test_processes_are_counted_as_tilelang_counts_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert trials.count_workers(100) == 14 and trials.count_workers(3) == 3
    monkeypatch.setenv("TILELANG_AUTO_TUNING_CPU_UTILITIES", "0.5")
    assert trials.count_workers(100) == 8
    monkeypatch.setenv("TILELANG_AUTO_TUNING_MAX_CPU_COUNT", "5")
    assert trials.count_workers(100) == 5
    monkeypatch.setenv("TILELANG_AUTO_TUNING_CPU_COUNTS", "4")
    assert trials.count_workers(100) == 4
    monkeypatch.setenv("TILELANG_AUTO_TUNING_CPU_COUNTS", "many")
    with pytest.raises(UserError, match=r"CPU_COUNTS: is 'many'; accepted: a number, such as -1"):
        trials.count_workers(100)
