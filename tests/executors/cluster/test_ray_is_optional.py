"""Without Ray everything but --cluster works, and nothing imports it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_ENVIRONMENT

SIZE = ["-m", "64", "-n", "64", "-k", "64"]


def test_one_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    assert main([*SIZE, "--cluster", "ray"]) == EXIT_ENVIRONMENT
    (line,) = capfd.readouterr().err.splitlines()
    assert "--cluster: Ray is not installed" in line and "pip install" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [["--cluster", "dask"], ["--cluster", "ray", "--ngpus", "2"], ["--cluster", "ray", "--compile_only"]]
)
def test_what_no_cluster_can_do_is_refused(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*SIZE, *words]) == 2
    assert "--cluster" in capfd.readouterr().err


def test_a_run_without_the_flag_imports_no_ray() -> None:
    code = "import sys, gemm_tuner.pipeline.cluster_run, gemm_tuner.cli.main; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
