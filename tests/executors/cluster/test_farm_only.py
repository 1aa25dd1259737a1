"""A run on a cluster without a GPU, through Ray: it compiles there and predicts, and its rows are a local run's."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT

OTHER_IN_THE_HEADER = re.compile("^  (date|run): .*$", re.MULTILINE)
COMMAND = [sys.executable, str(ROOT / "tune_gemm.py"), "-m", "64", "-n", "64", "-k", "64", "--families", "gemm_tile"]


def rows(folder: Path, *more: str) -> str:
    (folder / "cache").mkdir(parents=True)
    own = {"GEMM_TUNER_CACHE_DIR": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": "", "RAY_ADDRESS": ""}
    command = [*COMMAND, "-o", "tuned.yaml", *more]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "raylet" not in done.stdout + done.stderr
    return OTHER_IN_THE_HEADER.sub("", (folder / "tuned.yaml").read_text())


@pytest.mark.usefixtures("only_cluster")
@pytest.mark.grid  # Ray starts for 10 s
def test_a_cluster_without_a_gpu_compiles_and_times_are_predicted(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    here = rows(tmp_path / "here")
    assert rows(tmp_path / "cluster", "--cluster", "ray", "--num_threads", "2") == here
    (run,) = (tmp_path / "cluster" / "results").glob("2*")
    if not (run / "ray_logs").exists():
        pytest.skip("a cluster runs on this machine")
    with sqlite3.connect(run / "run.sqlite") as base:
        leases = base.execute("SELECT DISTINCT state, worker FROM leases").fetchall()
    assert [state for state, _ in leases] == ["done"] and "cores" in leases[0][1]
    assert "predicted" in here
