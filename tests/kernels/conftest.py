"""Fixtures of the tests in this folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from spec_runs import BENCH, Run, script


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("MODULAR_PYTHON", raising=False)
    return Run(tmp_path, monkeypatch)


@pytest.fixture
def modular(run: Run) -> Run:
    """A spec as Modular's, and a stand-in of mojo on PATH."""
    script(run.folder / "mojo", BENCH)
    run.setenv("PATH", f"{run.folder}:{os.environ['PATH']}")
    (run.folder / "sample.mojo").touch()
    text = "name: gemm\nfile: sample.mojo\nparams:\n    M: [3, 2]\n    S: [4, 8]\n"
    (run.folder / "t.yaml").write_text(text, encoding="utf-8")
    return run
