"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launcher_runs import Run, plan
from launchers_in_process import run_launchers_here
from nsys_on_path import nsys_on_path

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.measure.launcher_process import LiveLauncher
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.profilers.nsys import Nsys


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nsys on PATH."""
    monkeypatch.setenv("STAND_IN_NOTES", str(nsys_on_path(tmp_path, monkeypatch)))


@pytest.fixture
def here(nsys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both stand-ins are called in this process: for what becomes of journals, traces and exit statuses."""
    run_launchers_here(monkeypatch)


@pytest.fixture
def run(nsys: None, tmp_path: Path) -> Run:
    def run(*work: tuple[GemmProblem, list[str]], **fields: Any) -> StageRun:
        launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda")
        return launcher.timings(plan(*work, **fields), tmp_path / "00-screen")

    return run
