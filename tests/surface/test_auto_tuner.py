"""``gt.AutoTuner`` and the folder of its result."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tilelang_stand_in as stand_in
import torch
from said_times import Said
from scale_kernel import scale
from tilelang_stand_in import MatmulKernel, matmul

import gemm_tuner as gt
from gemm_tuner.core.errors import UserError

BLOCKS = [{"block_M": 64}, {"block_M": 32}, {"block_M": 16}]
BOUND = partial(matmul, 64, 64, 64)


class Clock(Said):
    """Of calls of the stand-in."""

    def _one(self, call: Any) -> Any:
        found = super()._one(call)
        return found if isinstance(found, Exception) else stand_in.TIMED[-1] * 1e3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    stand_in.BUILT.clear()
    return tmp_path / "cache"


def tuner(function: Any = BOUND, configs: Any = BLOCKS, **profile: Any) -> gt.AutoTuner:
    made = gt.AutoTuner.from_kernel(function, configs)
    assert made.set_profile_args(backend=Clock(), **profile) is made
    assert made.set_compile_args(out_idx=[-1]) is made
    return made


def test_the_chain_gives_all_fields(tmp_path: Path) -> None:
    result = tuner(ref_prog=lambda a, b: a @ b).run(rep=5, cache_results=False, output_dir=tmp_path)
    assert result.config == {"block_M": 32} and isinstance(result.kernel, MatmulKernel) and result.kernel.block == 32
    assert result.latency == pytest.approx(1.0) and result.ref_latency is not None
    assert result.libcode == "// block_M = 32\n" and result.func.func is matmul
    rows = {row["block_M"]: row for row in result.table if not row["baseline"]}
    assert {block: row["status"] for block, row in rows.items()} == {64: "ok", 32: "ok", 16: "ok"}
    assert {row["verified"] for row in rows.values()} == {"true"}
    (folder,) = tmp_path.glob("*-matmul")
    assert "block_M16: ok" in (folder / "tune.log").read_text("utf-8"), "the log is in the run's folder"


def test_each_profile_argument_reaches_the_run(tmp_path: Path) -> None:
    run = {"cache_results": False, "output_dir": None}
    a = torch.ones(64, 64)
    inputs: list[Any] = []

    def supply(params: Any) -> list[torch.Tensor]:
        inputs.append([(one.dtype, one.shape) for one in params])
        return [a, a]

    tuner(supply_prog=supply, rep=2).run(**run)
    assert inputs[0] == [("float32", (64, 64))] * 2 and len(inputs) > 1
    calls = len(inputs)
    tuner(supply_prog=supply, rep=2, cache_input_tensors=True).run(**run)
    assert len(inputs) == calls + 1
    stand_in.TIMED.clear()
    tuner(configs=[{"block_M": 32}], warmup=2, rep=30).run(**run)
    few = len(stand_in.TIMED)
    tuner(configs=[{"block_M": 32}], warmup=22, rep=50).run(**run)
    assert len(stand_in.TIMED) - few == few + 20 + 20
    zeros = tuner(supply_type=gt.TensorSupplyType.Zero, ref_prog=lambda a, b: torch.zeros(64, 64), rtol=0, atol=0)
    assert zeros.run(**run).config == {"block_M": 32}
    off = [{"block_M": 32, "offset": 0.1}, {"block_M": 16}]
    strict = tuner(configs=off, ref_prog=lambda a, b: a @ b, max_mismatched_ratio=0.0)
    assert strict.run(**run).config == {"block_M": 16}
    wide = tuner(configs=off, ref_prog=lambda a, b: a @ b, rtol=0, atol=0.2)
    assert wide.run(**run).config["block_M"] == 32
    with pytest.raises(UserError, match=r"'cuda'.*accepted: auto, event, cupti, cudagraph.*nsys"):
        gt.AutoTuner.from_kernel(BOUND, BLOCKS).set_profile_args(backend="cuda")
    with pytest.raises(UserError, match="cannot be rebuilt in another process"):
        gt.AutoTuner.from_kernel(BOUND, BLOCKS).set_profile_args(backend="rocprofv3", supply_prog=supply).run(**run)
    with pytest.warns(UserWarning, match="use_pipeline"):
        tuner(configs=BLOCKS[:1]).run(use_pipeline=True, **run)


class PrimFunc:
    """A program of TileLang that is not compiled."""

    def __init__(self, block: int) -> None:
        self.block = block


def test_a_program_is_compiled_as_asked_and_a_configuration_may_ask_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def compile(program: PrimFunc, **options: Any) -> MatmulKernel:
        asked.append(options)
        return matmul(64, 64, 64, program.block)

    monkeypatch.setitem(sys.modules, "tilelang", SimpleNamespace(compile=compile))
    made = gt.AutoTuner.from_kernel(
        lambda block_M=16: PrimFunc(block_M), [{"block_M": 16, "pass_configs": {"fast": 1}}, {"block_M": 32}]
    )
    made.set_profile_args(rep=2, warmup=1, backend=Clock())
    made.set_compile_args(out_idx=[-1], target="hip", execution_backend="cython", pass_configs={"checks": 0})
    result = made.run(cache_results=False, output_dir=None)
    assert result.config == {"block_M": 32} and result.kernel.block == 32
    common = {
        "out_idx": [-1], "target": "hip", "execution_backend": "cython", "target_host": None, "verbose": False,
    }  # fmt: skip
    assert asked == [
        {**common, "pass_configs": {"checks": 0, "fast": 1}},
        {**common, "pass_configs": {"checks": 0}},
    ]


def test_a_function_of_the_bound_arguments_gives_the_configurations() -> None:
    made = tuner(configs=lambda m, n, k: [{"block_M": min(m, 64)}])
    assert made.run(cache_results=False, output_dir=None).config == {"block_M": 64}


def test_a_kernel_in_place_of_its_factory_and_arguments_that_are_not_bound_are_told_with_the_mend() -> None:
    run: dict[str, Any] = {"cache_results": False, "output_dir": None}
    with pytest.raises(UserError, match=r"'block_M' is no argument.*functools\.partial\("):
        tuner(lambda a, b: a @ b).run(**run)
    with pytest.raises(UserError, match=r"matmul: has no value for m, n, k; .*functools\.partial\(matmul"):
        tuner(matmul).run(**run)


LOAD = """
import sys, json, torch
import gemm_tuner as gt
result = gt.AutotuneResult.load_from_disk(sys.argv[1], gt.CompileArgs())
a = torch.eye(64)
print(json.dumps([dict(result.config), result.latency, result.kernel.block, bool((result.kernel(a, a) == a).all()),
                  result.libcode, len(result.table), result.binaries["ptx"].decode(), "triton" in sys.modules]))
"""


def test_a_cell_that_no_number_wrote_stays_text(tmp_path: Path) -> None:
    """Such as a name that Python would read as a number, or what a damaged file has."""
    table = [
        {"name": "128_4", "block": 64, "us": 1.5e-07, "sizes": (1, 2), "fast": True, "other": "{[]: 1}", "code": "0x10"}
    ]
    gt.AutotuneResult(latency=1.0, config={"block": 64}, table=table).save_to_disk(tmp_path / "result")
    assert gt.AutotuneResult.read(tmp_path / "result").table == table


def test_a_result_is_read_in_a_fresh_process(tmp_path: Path) -> None:
    result = tuner().run(rep=5, cache_results=False, output_dir=None)
    folder = tmp_path / "best" / "matmul_64"
    replace(result, binaries={"ptx": b".version 8.0"}).save_to_disk(folder)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, "-W", "error", "-c", LOAD, str(folder)]
    done = subprocess.run(run, capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {"block_M": 32}, result.latency, 32, True, "// block_M = 32\n", 3, ".version 8.0", False,
    ]  # fmt: skip
    names = {path.name for path in folder.iterdir()}
    table = gt.AutotuneResult.read(folder).table
    assert [{k: v for k, v in row.items() if v != ""} for row in table] == [
        {k: v for k, v in row.items() if v not in ("", None)} for row in result.table
    ]
    assert not any(name.endswith((".pkl", ".pickle")) for name in names) and len(list(folder.parent.iterdir())) == 1


def test_what_a_folder_does_not_say_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the one who writes it, and by the one who reads it."""

    def local(block_M: int = 16) -> MatmulKernel:
        return matmul(64, 64, 64, block_M)

    result = tuner(local).run(rep=5, cache_results=False, output_dir=None)
    folder = tmp_path / "local"
    result.save_to_disk(folder, verbose=True)
    code, function = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not kept: ")]
    assert "load_from_disk builds the kernel again" in code and "local, which no import finds" in function
    whole = replace(result, binaries={"ptx": b""}, origin={"module": "m", "qualname": "f", "args": [1]})
    assert whole.not_kept() == () and len(replace(whole, origin={**whole.origin, "args": None}).not_kept()) == 1
    with pytest.warns(UserWarning, match=r"defined inside a function.*function="):
        loaded = gt.AutotuneResult.load_from_disk(folder)
    assert loaded.kernel is None and loaded.config == result.config
    assert gt.AutotuneResult.load_from_disk(folder, function=local).kernel.block == 32

    def other(block_M: int = 32) -> MatmulKernel:
        return matmul(8, 8, 8, block_M)

    with pytest.warns(UserWarning, match="another one now"):
        assert gt.AutotuneResult.load_from_disk(folder, function=other).kernel is None
    with pytest.raises(UserError, match=r"origin\.json"):
        gt.AutotuneResult.load_from_disk(tmp_path)


def test_a_changed_binary_is_refused(tmp_path: Path) -> None:
    result = gt.AutotuneResult(config={"BLOCK": 1}, binaries={"cubin": b"code"})
    result.save_to_disk(tmp_path / "r")
    (tmp_path / "r" / "kernel.cubin").write_bytes(b"edoc")
    with pytest.raises(UserError, match=r"kernel\.cubin: was changed"):
        gt.AutotuneResult.load_from_disk(tmp_path / "r")


def test_a_second_process_builds_only_the_best(cache: Path) -> None:
    chain = gt.AutoTuner.from_kernel(BOUND, BLOCKS).set_profile_args(rep=3, warmup=1, skip_check=True)
    first = chain.run(output_dir=None)
    stand_in.BUILT.clear()
    again = gt.AutoTuner.from_kernel(BOUND, BLOCKS).set_profile_args(rep=3, warmup=1, skip_check=True)
    second = again.run(output_dir=None)
    assert second.config == first.config and second.latency == first.latency
    assert [one.block for one in stand_in.BUILT] == [first.config["block_M"]] and second.kernel is stand_in.BUILT[0]
    (kept,) = (cache / "autotune").iterdir()
    (kept / "best_config.json").unlink()
    third = again.run(output_dir=None)
    assert third.kernel is not None and len(stand_in.BUILT) > 3, "a damaged folder is not trusted"


def test_a_cache_that_a_variable_disables_is_told_with_the_variable(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILELANG_AUTO_TUNING_DISABLE_CACHE", "1")
    chain = gt.AutoTuner.from_kernel(BOUND, BLOCKS[:1]).set_profile_args(rep=3, warmup=1, skip_check=True)
    with pytest.warns(UserWarning, match="matmul: .* TILELANG_AUTO_TUNING_DISABLE_CACHE is set; unset it"):
        chain.run(output_dir=None)
    assert not (cache / "autotune").exists()


def test_what_another_process_cannot_have_is_named() -> None:
    made = gt.AutoTuner.from_kernel(BOUND, BLOCKS)
    run: dict[str, Any] = {"cache_results": False, "output_dir": None, "profiler": "clock"}
    with pytest.raises(UserError, match=r"ref_prog cannot be rebuilt in another process: .*lambda"):
        made.set_profile_args(ref_prog=lambda a, b: a @ b).run(**run)
    with gt.set_autotune_inputs(1, 2), pytest.raises(UserError, match="tensors of set_autotune_inputs"):
        made.set_profile_args().run(**run)


def test_a_triton_kernel_is_tuned_for_one_launch_with_the_options_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernels = importlib.import_module("interpreted_kernels")
    del sys.modules["interpreted_kernels"]
    x, out = torch.randn(64), torch.zeros(64)
    kernel, grid = partial(kernels.scale, x, out, 64, 3.0), lambda meta: (-(-64 // meta["BLOCK"]),)
    configs = [{"BLOCK": 16, "WRONG": 1}, {"BLOCK": 64}, {"BLOCK": 32, "num_warps": 2}]
    made = gt.AutoTuner.from_kernel(kernel, configs, grid)
    made.set_profile_args(ref_prog=lambda x, out: torch.allclose(out, 3 * x), rep=2, warmup=1)
    made.set_compile_args(options={"num_warps": 8})
    result = made.run(output_dir=tmp_path)
    assert {row["BLOCK"]: (row["status"], row["num_warps"]) for row in result.table if not row["baseline"]} == {
        16: ("wrong", 8), 64: ("ok", 8), 32: ("ok", 2),
    }  # fmt: skip
    assert not out.any(), "the caller's tensors are as they were"
    result.kernel[grid](x, out, 64, 3.0)
    assert torch.equal(out, 3 * x)
    again = made.run(output_dir=tmp_path)
    assert again.config == result.config and len(list(tmp_path.glob("*-scale"))) == 1, "it is kept on disk"
    with pytest.raises(UserError, match=r"scale: has no grid; AutoTuner.from_kernel\(kernel, configs, grid\)"):
        gt.AutoTuner.from_kernel(kernel, configs).run()
    with pytest.raises(UserError, match="grid: is given for a function that is no Triton kernel"):
        gt.AutoTuner.from_kernel(BOUND, BLOCKS, grid).run()


def test_for_another_target_a_triton_kernel_is_compiled_and_not_timed() -> None:
    x = torch.empty(4096, device="meta")
    configs = [{"BLOCK": 1024}, {"BLOCK": 100}, {"BLOCK": 1024, "num_warps": 1}]
    made = gt.AutoTuner.from_kernel(partial(scale, x, x, 0.5, 4096), configs)
    result = made.set_compile_args(target="gfx942", options={"num_warps": 8}).run()
    rows = [(row["status"], row["num_warps"], row["registers"]) for row in result.table]
    assert [row[:2] for row in rows] == [("ok", 8), ("compile_error", 8), ("ok", 1)]
    assert 0 < rows[0][2] < rows[2][2], "more warps, fewer elements a thread"
    assert result.latency is None and result.kernel is None and not result.config
    for options, why in (({"target": "metal"}, "no such target"), ({"options": {"num_warp": 8}}, "mean num_warps")):
        with pytest.raises(UserError, match=why):
            made.set_compile_args(**options).run()
    with pytest.raises(UserError, match="options: are of a Triton launch"):
        gt.AutoTuner.from_kernel(BOUND, BLOCKS).set_compile_args(options={"num_warps": 8}).run()
    with pytest.raises(ValueError, match=r"none compiles for gfx942: .*power of 2"):
        gt.AutoTuner.from_kernel(partial(scale, x, x, 0.5, 4096), configs[1:2]).set_compile_args(target="gfx942").run()
