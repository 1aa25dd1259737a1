"""What is started while the space is cut: the launchers of screening, finals and checks, without the GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from samples import ROOT
from tuning import StandInGpu, limit, session

from gemm_tuner.measure.budget import Budget
from gemm_tuner.pipeline.run import start_launchers

pytestmark = pytest.mark.usefixtures("in_a_folder")


@dataclass
class Preparing(StandInGpu):
    """Notes what is started, and how many."""

    started: list[tuple[str, int]] = field(default_factory=list)

    def prepare(self) -> None:
        self.started.append(("screening", 1))

    def prepare_finals(self, count: int) -> None:
        self.started.append(("finals", count))

    def prepare_check(self) -> None:
        self.started.append(("check", 1))


@pytest.mark.parametrize(("overlaps", "budget_s", "also"), [(True, 0.0, True), (False, 0.0, False), (True, 1e4, False)])
def test_finals_and_checks_start_early_where_their_processes_start_together(
    overlaps: bool, budget_s: float, also: bool, tmp_path: Path
) -> None:
    of, gpus = session(tmp_path), [Preparing(overlaps=overlaps), Preparing(overlaps=overlaps)]
    if budget_s:
        limit(of, Budget(budget_s))
    start_launchers(gpus, of)
    for gpu in gpus:
        assert gpu.started == [("screening", 1), *([("finals", 5), ("check", 1)] if also else [])]


def test_launchers_start_before_pandas_is_imported() -> None:
    """That takes half a second on a machine where torch takes three."""
    code = "import sys, gemm_tuner.cli.main, gemm_tuner.pipeline.run; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
