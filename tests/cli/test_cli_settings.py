"""The command line: what the flags and the entries of a size file come to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_answers import ONE, asked
from samples import ROOT

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK, UserError
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.pipeline import run as pipeline
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.system import control_groups

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(
    ("argv", "types"),
    [
        ([], ("bf16", "bf16", "bf16")),
        (["-dtype_a", "fp16"], ("fp16", "fp16", "fp16")),
        (["-dtype_b", "fp32"], ("fp32", "fp32", "fp32")),
        (["-dtype_a", "fp16", "-dtype_c", "fp32"], ("fp16", "fp16", "fp32")),
        (["-dtype_a", "fp8_e4m3"], ("fp8_e4m3", "fp8_e4m3", "bf16")),
        (["-dtype_a", "fp8_e5m2", "-dtype_b", "fp8_e4m3"], ("fp8_e5m2", "fp8_e4m3", "bf16")),
        (["-dtype_a", "int8"], ("int8", "int8", "int32")),
        (["--dtype", "fp16"], ("fp16", "fp16", "fp16")),
        (["--dtype", "fp8_e4m3", "--dtype_c", "fp32"], ("fp8_e4m3", "fp8_e4m3", "fp32")),
        (["-dtype_a", "int8", "--scaling", "row_col"], ("int8", "int8", "bf16")),
    ],
)
def test_types_follow_the_first(argv: list[str], types: tuple[str, str, str]) -> None:
    problem = asked(*ONE, *argv).entries[0].problem
    assert (problem.dtype_a, problem.dtype_b, problem.dtype_c) == types


def test_layouts_and_bias() -> None:
    problem = asked(*ONE, "-col_a", "--bias_vector").entries[0].problem
    assert (problem.layout_a, problem.layout_b, problem.bias) == (Layout.COL, Layout.ROW, True)


def test_batch_epilogue_scales_and_precision() -> None:
    flags = ("--batch", "7", "--activation", "gelu", "--alpha", "2", "--beta", "-0.5", "--scaling", "tensor")
    problem = asked(*ONE, *flags, "-dtype_a", "fp8_e4m3").entries[0].problem
    expected = {"batch": 7, "activation": "gelu", "alpha": 2.0, "beta": -0.5, "scaling": "tensor", "dtype_c": "bf16"}
    assert problem == GemmProblem(64, 64, 64, "fp8_e4m3", "fp8_e4m3", **expected)  # type: ignore[arg-type]
    assert asked(*ONE, "-dtype_a", "fp32", "--precision", "tf32").entries[0].problem.precision == "tf32"
    assert asked(*ONE, "--beta=-1e-3").entries[0].problem.beta == -0.001


def test_an_entry_of_a_file_has_its_own_say(tmp_path: Path) -> None:
    (tmp_path / "sizes.yaml").write_text("- {M: 1, N: 2, K: 3}\n- {M: 1, N: 2, K: 3, batch: 1, beta: 0}\n")
    found = asked("--gemm_size_file", "sizes.yaml", "--batch", "2", "--beta", "3").entries
    assert [(entry.problem.batch, entry.problem.beta) for entry in found] == [(2, 3.0), (1, 0.0)]


def test_the_settings_of_a_full_command_line(tmp_path: Path) -> None:
    run_options = asked(
        *ONE, "--o", "t.yaml", "--compare", "--gpu_ids", "0,3", "--num_threads", "7", "--jobs", "4", "--iters", "9",
        "--warmup", "0", "--rotating_tensor", "512", "--keep", "--verbose", "--time_breakdown", "--no_warmup",
        "--profiler", "proton", "--arch", "gfx942", "--no_heuristics", "--init_type", "hpl", "--seed", "3",
        "--compile_limit", "5",
    )  # fmt: skip
    expected: dict[str, Any] = {
        "results_file": Path("t.yaml"), "check_all_finalists": True, "gpu_ids": (0, 3), "compile_workers": 7,
        "jobs": 4, "iters": 9, "warmup": 0, "rotating_mib": 512, "keep": True, "verbose": True, "time_breakdown": True,
        "compile_stage": False, "profiler": "proton", "arch": "gfx942", "heuristics": False, "init_type": "hpl",
        "seed": 3, "compile_limit_s": 5.0, "output_dir": Path("results"),
    }  # fmt: skip
    assert {key: getattr(run_options, key) for key in expected} == expected


def test_workers_may_be_a_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr(control_groups, "core_limit", lambda root: None)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(32)), raising=False)  # a scheduler allows
    assert asked(*ONE).compile_workers == 32
    assert [asked(*ONE, "--num_threads", text).compile_workers for text in ("0.9", ".01", "40")] == [28, 1, 40]
    for wrong in ("1.9", "0", "x"):
        with pytest.raises(UserError, match=r"nor a share of the cores such as 0\.9"):
            asked(*ONE, "--num_threads", wrong)
    monkeypatch.delattr("os.sched_getaffinity")  # as on macOS
    assert asked(*ONE).compile_workers == 64
    monkeypatch.setattr(control_groups, "core_limit", lambda root: 2.5)
    assert asked(*ONE).compile_workers == 3


def test_sizes_of_a_file_are_tuned_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sizes.yaml").write_text("- {M: 1, N: 2, K: 3}\n- {M: 4, N: 5, K: 6}\n- {M: 1, N: 2, K: 3}\n")
    heard: list[RunOptions] = []
    monkeypatch.setattr(pipeline, "tune", lambda run_options, *_: heard.append(run_options) or EXIT_OK)
    assert main(["--gemm_size_file", "sizes.yaml"]) == EXIT_OK
    assert [entry.problem.m for entry in heard[0].entries] == [1, 4]
    assert "1 repeated" in capsys.readouterr().err


def test_the_command_itself() -> None:
    command = [sys.executable, str(ROOT / "tune_gemm.py"), "-m", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (EXIT_INPUT, "")
    assert done.stderr == "tune_gemm.py: -m: '0' is not an integer of 1 or more\n"
