"""AITER's tuning functions by their names: a script of its guide runs with the import changed."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from said_times import RIGHT, Said
from samples import ROOT

import gemm_tuner as gt
from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.buckets import Bucket


def test_arguments_and_defaults_are_aiters() -> None:
    def defaults(function: Callable[..., Any]) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters.values()
        return {one.name: one.default for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD}

    none = inspect.Parameter.empty
    assert defaults(gt.tune_kernel) == {
        "search_space": none, "make_run_and_gt_fn": none, "config_callback": None, "num_iters": 10, "atol": 1e-2,
        "rtol": 1e-2,
    }  # fmt: skip
    assert defaults(gt.benchmark_config) == {
        "run": none, "ground_truth": none, "num_iters": 10, "atol": 1e-1, "rtol": 1e-1,
    }  # fmt: skip
    assert defaults(gt.get_search_space) == {"small": False}
    assert list(defaults(gt.save_configs_to_json)) == ["json_file_name", "save_path", "configs"]


def test_the_spaces_have_aiters_sizes_and_keys() -> None:
    full, small = gt.get_search_space(), gt.get_search_space(small=True)
    assert (len(full), len(small)) == (3840, 8) and all(one in full for one in small)
    assert list(full[0]) == [
        "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages", "waves_per_eu",
        "matrix_instr_nonkdim",
    ]  # fmt: skip


def test_the_callback_changes_what_is_used_and_rows_have_both(tmp_path: Path) -> None:
    clock, inputs = Said(), []

    def make_run_and_gt(config: dict[str, Any]) -> tuple[Callable[[], Any], Any]:
        inputs.append((config["BLOCK"], config["layout"]))
        if config["BLOCK"] == 64:
            raise RuntimeError("OutOfResources")
        return clock.call(config["BLOCK"], RIGHT + (config["BLOCK"] == 16)), RIGHT

    space = [{"BLOCK": 64}, {"BLOCK": 16}, {"BLOCK": 32}, {"BLOCK": 48}]
    best = gt.tune_kernel(
        space,
        make_run_and_gt,
        lambda config: config.update(layout="row"),
        num_iters=2,
        clock=clock,
        output_dir=tmp_path,
    )
    assert best == {"BLOCK": 32, "layout": "row"} and set(inputs) == {(b, "row") for b in (16, 32, 48, 64)}
    assert space[0] == {"BLOCK": 64}
    (table,) = tmp_path.glob("*/table.csv")
    lines = {line.split(",")[0]: line for line in table.read_text().splitlines()}
    assert "used layout" in lines["name"] and ",row," in lines["BLOCK32"] and ",wrong," in lines["BLOCK16"]


def test_inputs_may_follow_from_the_configuration() -> None:
    """As tokens that are padded to whole blocks; one that is given the inputs of another is wrong."""
    clock, lengths = Said(), dict[int, set[int]]()

    def input_helper(tokens: int, config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        padded = -(-tokens // config["BLOCK_SIZE_M"]) * config["BLOCK_SIZE_M"]
        return np.arange(padded) % tokens, config

    def make_run_and_gt(config: dict[str, Any]) -> tuple[Callable[[], Any], Any]:
        slots, config = input_helper(10, config)

        def run() -> Any:
            clock.us = float(len(slots))
            lengths.setdefault(config["BLOCK_SIZE_M"], set()).add(len(slots))
            return slots.reshape(-1, config["BLOCK_SIZE_M"])

        return run, slots.reshape(-1, config["BLOCK_SIZE_M"])

    space = [{"BLOCK_SIZE_M": block} for block in (16, 4)]
    assert gt.tune_kernel(space, make_run_and_gt, clock=clock, output_dir=None) == {"BLOCK_SIZE_M": 4}
    assert lengths == {16: {16}, 4: {12}}


def test_nothing_right_is_an_error_that_says_why() -> None:
    with pytest.raises(ValueError, match="No best kernel found: 1 of 1 are wrong"):
        gt.tune_kernel([{"B": 1}], lambda config: (lambda: RIGHT, RIGHT + 1), output_dir=None)


def test_a_kernel_that_goes_wrong_in_a_later_call_is_wrong() -> None:
    clock, calls = Said(), []

    def make(config: dict[str, Any]) -> tuple[Callable[[], Any], Any]:
        def run() -> Any:
            clock.us = config["B"]
            if config["B"] == 1:
                calls.append(1)
            return RIGHT + (config["B"] == 1 and len(calls) > 8)

        return run, RIGHT

    assert gt.tune_kernel([{"B": 1}, {"B": 2}], make, clock=clock, output_dir=None) == {"B": 2}


def test_benchmark_config_is_the_mean_in_microseconds() -> None:
    clock = Said()
    times = iter([7.0] * 5 + [10.0, 20.0, 30.0, 20.0])

    def run() -> Any:
        clock.us = next(times)
        return RIGHT + 0.05

    assert gt.benchmark_config(run, RIGHT, num_iters=4, clock=clock) == pytest.approx(20.0)
    assert 0 < gt.benchmark_config(lambda: RIGHT, RIGHT) < 1e4


def fails() -> Any:
    raise MemoryError("out of resource: shared memory")


@pytest.mark.parametrize(
    ("run", "why"), [(lambda: RIGHT + 1, "100 %"), (lambda: np.full(4, np.nan), "nan"), (fails, "shared memory")]
)
def test_benchmark_config_survives_what_fails(run: Callable[[], Any], why: str) -> None:
    with pytest.warns(UserWarning, match=why):
        assert gt.benchmark_config(run, RIGHT) == float("inf")


def test_configurations_are_saved_as_aiter_does(tmp_path: Path) -> None:
    configs = {"small": {"BLOCK_SIZE_M": 16}, "large": {"BLOCK_SIZE_M": 128}}
    gt.save_configs_to_json("MI300X-GEMM.json", str(tmp_path / "new" / "folder"), configs)
    text = (tmp_path / "new" / "folder" / "MI300X-GEMM.json").read_text()
    assert text == json.dumps(configs, indent=4) + "\n"
    with pytest.raises(TypeError):
        gt.save_configs_to_json("MI300X-GEMM.json", str(tmp_path / "new" / "folder"), {"small": object()})
    (only,) = (tmp_path / "new" / "folder").iterdir()
    assert only.read_text() == text, "what cannot be written leaves the file as it was"


def test_a_bucket_gets_what_takes_the_least_time_over_its_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Said()
    times = {100: {1: 50.0, 2: 30.0, 3: 31.0}, 200: {1: 20.0, 2: 60.0, 3: 21.0}, 300: {1: 9.0, 2: 8.0, 3: 7.0}}

    def factory(size: int) -> Callable[..., tuple[Callable[[], Any], Any]]:
        return lambda config: (clock.call(times[size][config["B"]]), RIGHT)

    found = gt.tune_and_save_configs(
        [100, 200, 300], factory, [{"B": b} for b in (1, 2, 3)], str(tmp_path / "configs"), "GPU", clock=clock,
        kernel_name="SUM", output_dir=None,
    )  # fmt: skip
    saved = json.loads((tmp_path / "configs" / "GPU-SUM.json").read_text())
    assert saved == {"small": {"B": 3}, "medium": {"B": 3}}
    small = found[0]
    assert small.us_of_last == pytest.approx(70.0) and small.loss_pct == pytest.approx(4.0)
    said = capsys.readouterr()
    lines, progress = said.out.splitlines(), said.err.splitlines()
    assert [line.partition(":")[0] for line in progress] == [f"size {n}00 ({n} of 3)" for n in (1, 2, 3)]
    assert len(lines) == 3 and "sizes 100, 200): 52 us in all" in lines[0] and lines[2].startswith("Tuning took ")
    with pytest.raises(UserError, match="300 is in no bucket"):
        gt.tune_and_save_configs([300], factory, [{"B": 1}], str(tmp_path), "GPU", buckets={"small": 256},
                                 clock=clock, output_dir=None)  # fmt: skip


def test_a_bucket_that_seems_to_take_less_than_the_best_is_said_to_be_noise() -> None:
    us = {1: 40.0, 2: 60.0}
    more, less = (Bucket("small", {"B": 1}, us, best, 60.0).line() for best in ({1: 40, 2: 40}, {1: 65, 2: 60}))
    assert "25 % more than each by its own best;" in more
    assert "20 % less than each by its own best, which is noise;" in less


def test_the_script_of_the_guide_runs_without_a_gpu(tmp_path: Path) -> None:
    script = ROOT / "examples" / "kernels" / "tune_softmax.py"
    rows = ["--rows", "8", "16", "300", "--cols", "64"]
    folders = ["--save_path", str(tmp_path / "configs"), "--output_dir", str(tmp_path / "runs")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(script), *rows, *folders], capture_output=True, text=True, env=environment, check=True
    )
    saved = json.loads((tmp_path / "configs" / "CPU-SOFTMAX.json").read_text())
    assert list(saved) == ["small", "medium"] and all(set(one) == {"ROWS", "num_warps"} for one in saved.values())
    assert saved["medium"]["ROWS"] > 1 and "Tuning took " in done.stdout
    assert len(list((tmp_path / "runs").glob("*-SOFTMAX-*/table.csv"))) == 3
