"""``tune_gemm.py kernel`` with language: cute, by the stand-in for the DSL: compiled, and never chosen unchecked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import tune_gemm
from fault_runs import statuses_of_run
from samples import ROOT

from gemm_tuner.core.errors import UserError
from gemm_tuner.cute.problem import CuteProblem, problem_of
from gemm_tuner.cute.workload import WORKLOAD
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.store import results, run_record

STAND_IN = ROOT / "tests" / "helpers" / "cute_stand_in"
SPEC = """
name: copies
language: cute
kernel: builders.py:built
cases: [{rows: 4096, fault: none}, {rows: 64, fault: none}]
tensors: {x: {shape: rows, dtype: fp16}, y: {shape: rows, dtype: fp16, output: true}}
args: {count: "rows * tile[0]"}
params: {tile: [[16, 64], [96, 64], [32, 4096]], shared: [1024]}
rules: [{keep: "tile[1] < 4096", why: too wide}]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    shutil.copy(STAND_IN / "builders.py", tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path / "spec.yaml"


def test_kernels_are_compiled_once_for_all_cases_and_none_is_chosen_without_a_gpu(spec: Path) -> None:
    command = [sys.executable, str(ROOT / "tune_gemm.py"), "kernel", "--spec", str(spec), "--arch", "sm_90"]
    environment = {**os.environ, "PYTHONPATH": str(STAND_IN), "GEMM_TUNER_CACHE_DIR": str(spec.parent / "cache")}
    done = subprocess.run(
        [*command, "-o", "tuned.yaml"], capture_output=True, text=True, cwd=spec.parent, env=environment
    )
    assert "cute kernels run on a GPU only; copies_tile16x64_shared1024 is predicted best" in done.stdout, done.stderr
    (run,) = (spec.parent / "results").glob("*-*")
    statuses = statuses_of_run(run)
    assert len(statuses) == 2
    for key, found in statuses.items():
        assert found == {"copies_tile16x64_shared1024": "ok", "copies_tile96x64_shared1024": "ok"}
        assert run_record.read_table(run, key).set_index("name").loc["copies_tile96x64_shared1024", "registers"] >= 96
    assert not results.read(spec.parent / "tuned.yaml").rows
    assert len(list((spec.parent / "cache").glob("kernels/cute-*/*/kernel.so"))) == 2


def test_a_launch_gets_tensors_and_args_and_the_builder_the_rest(spec: Path) -> None:
    found, cases = kernel_spec_file.read(spec)
    problem = problem_of(found, cases[0])
    assert isinstance(problem, CuteProblem) and WORKLOAD.specialization(problem, None, None) == "fault=none"  # type: ignore[arg-type]
    sizes = WORKLOAD.check_problems(problem, {}, descriptors=False, interpreted=False)
    assert [dict(one.case)["rows"] for one in sizes] == [4096, 72]  # type: ignore[attr-defined]


def test_another_gpu_is_refused_in_one_line(spec: Path) -> None:
    done = tune_gemm(spec.parent, "kernel", "--spec", str(spec), "--arch", "gfx942", "--dry_run")
    assert done.returncode == 2 and "CuTe DSL compiles nothing for gfx942" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("args:", "grid: [1]\nargs:", "has a grid.*none for language: cute"),
        ("language: cute", "language: kute", "language"),
        ("shared: [1024]", "shared: [1024], wide: [1]", "wide is no parameter of built"),
        ("fault: none}, ", "}, ", "fault, a parameter of built, gets no value"),
    ],
)
def test_a_spec_that_fits_nothing_is_refused(spec: Path, old: str, new: str, match: str) -> None:
    spec.write_text(SPEC.replace(old, new))
    with pytest.raises(UserError, match=match):
        kernel_spec_file.read(spec)
