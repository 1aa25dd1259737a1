"""The Python surface with a Triton kernel: clocks, checks, A/A, AITER's script."""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import live_functions
import pytest
from samples import ROOT

import gemm_tuner as gt
from gemm_tuner.core.records import Status, Verified

pytestmark = pytest.mark.gpu


@cache
def example() -> Any:
    sys.path.insert(0, str(ROOT / "examples" / "kernels"))
    return importlib.import_module("softmax")


def operands(rows: int = 4096, cols: int = 1024) -> tuple[Any, Any]:
    import torch

    x = torch.randn(rows, cols, device="cuda", dtype=torch.float16)
    return x, torch.empty_like(x)


def launch(x: Any, out: Any, config: dict[str, Any]) -> Any:
    import triton

    grid = (triton.cdiv(x.shape[0], config["ROWS"]),)
    block = triton.next_power_of_2(x.shape[1])
    example().softmax_rows[grid](out, x, x.stride(0), *x.shape, BLOCK=block, **config)
    return out


SPACE = [{"ROWS": rows, "num_warps": warps} for rows in (1, 4, 64) for warps in (1, 4, 8)]


@pytest.mark.parametrize("clock", ["proton", "events"])
def test_a_kernel_is_tuned_by_kernel_times_with_the_cache_emptied(clock: str) -> None:
    import torch

    x, out = operands()
    tuned = gt.tune_callables(
        SPACE, lambda config: gt.Call(lambda: launch(x, out, config), outputs=[out]), clock=clock, output_dir=None,
        check=gt.Check(lambda: torch.softmax(x.double(), -1), atol=1e-3),
    )  # fmt: skip
    assert tuned.clock == clock and tuned.winner.verified is Verified.TRUE
    least_us = 2 * x.numel() * 2 / 4.8e6  # both tensors at 4.8 TB/s: less would be a warm cache
    assert least_us < tuned.latency_us < 20 * least_us
    times = {row.config["ROWS"]: row.us for row in tuned.rows if row.config["num_warps"] == 1 and row.us}
    assert 64 not in times or times[64] > tuned.latency_us


def test_auto_is_proton_on_a_gpu_and_the_host_for_functions_of_the_cpu() -> None:
    x, out = operands()
    config = {"ROWS": 1, "num_warps": 4}
    assert gt.benchmark([lambda: launch(x, out, config)], rounds=5).clock == "proton"
    assert gt.benchmark([lambda: sum(range(1000))], rounds=5).clock == "host"


def test_the_same_kernel_twice_is_a_tie_and_a_slower_one_is_not() -> None:
    x, out = operands()

    def kernel(x: Any) -> Any:
        return launch(x, out, {"ROWS": 1, "num_warps": 4})

    def slow(x: Any) -> Any:
        return launch(x, out, {"ROWS": 64, "num_warps": 1})

    found = gt.benchmark({"one": kernel, "other": kernel, "slow": slow}, [x])
    assert found.ties == {"one", "other"} and found.rows[-1].name == "slow"


def test_what_does_not_fit_or_does_not_compile_costs_one_row() -> None:
    x, out = operands(64, 1024)

    def build(config: dict[str, Any]) -> Any:
        return lambda: launch(x, out, config)

    tuned = gt.tune_callables([{"ROWS": 1, "num_warps": 3}, {"ROWS": 1, "num_warps": 4}], build, output_dir=None)
    assert tuned.config["num_warps"] == 4
    assert [row.status is Status.OK for row in tuned.rows] == [True, False]


def test_aiters_script_runs(tmp_path: Path) -> None:
    script = ROOT / "examples" / "kernels" / "tune_softmax.py"
    folders = ["--save_path", str(tmp_path), "--output_dir", str(tmp_path / "runs")]
    rows = ["--rows", "64", "256", "4096"]
    places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run([sys.executable, script, *rows, *folders], env={**os.environ, "PYTHONPATH": places}, check=True)
    (saved,) = tmp_path.glob("*-SOFTMAX.json")
    assert list(json.loads(saved.read_text())) == ["small", "large"]


def test_functions_that_can_be_imported_have_finals_under_nsys_and_survive_crashes() -> None:
    example()
    tuned = gt.tune_callables(
        [*SPACE, {"ROWS": 0, "num_warps": 4}], functools.partial(live_functions.build_softmax, 4096, 1024),
        profiler="nsys", check=gt.Check(skip=True), output_dir=None,
        baselines={"torch": live_functions.torch_softmax},
    )  # fmt: skip
    crashed = next(row for row in tuned.rows if row.config.get("ROWS") == 0)
    assert crashed.status is Status.CRASHED and "assert" in crashed.reason
    assert tuned.method == tuned.winner.method == "nsys" and tuned.winner.verified is Verified.TRUE
    in_process = gt.tune_callables([tuned.config], functools.partial(live_functions.build_softmax, 4096, 1024),
                                   clock="proton", output_dir=None)  # fmt: skip
    assert tuned.latency_us == pytest.approx(in_process.latency_us, rel=0.1)
    assert next(row.us for row in tuned.rows if row.baseline) is not None


def test_a_function_tunes_itself_under_nsys_by_inputs_of_the_same_type_and_shape() -> None:
    import torch

    example()
    rows = gt.callables(live_functions.build_rows, SPACE, reference=live_functions.softmax_of, atol=1e-3,
                        profiler="nsys", output_dir=None)  # fmt: skip
    x, _ = operands(1024)
    assert torch.allclose(rows(x).double(), torch.softmax(x.double(), -1), atol=1e-3, rtol=1e-2)
    tuned = rows.tune(x)
    assert tuned.winner.method == "nsys" and tuned.winner.verified is Verified.TRUE and rows.tunings == 1
