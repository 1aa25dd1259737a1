"""Runs on GPUs of other machines, which play back a recording: the rows are a local run's, whoever dies."""

from __future__ import annotations

import io
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from thread_workers import ThreadWorker

from gemm_tuner.cli import main as cli
from gemm_tuner.cli import options
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.executors.cluster.cluster_executor import Stations
from gemm_tuner.executors.cluster.gpu_station import GpuStation, show_only
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline import run
from gemm_tuner.pipeline.cluster_work import OnCluster

RECORDING = Path(__file__).resolve().parents[2] / "data" / "h200_nsys_recording"
ARGUMENTS = [
    *("--gemm_size_file", str(RECORDING / "sizes.yaml"), "--compare", "--search", "full", "--no_compile_stage"),
    *("--space", str(RECORDING / "space.yaml"), "--rules", str(RECORDING / "rules")),
    *("--profiler", "replay", "--replay", str(RECORDING / "raw")),
]
OTHER_IN_THE_HEADER = re.compile("^  (date|run): .*$", re.MULTILINE)


class Gpu(GpuStation):
    """Its machine dies when it is to begin a plan of the stage ``dies_at``, or before that plan's first news."""

    dies_at, kill = "", print

    def begin(self, job: str, plan: Any, *of: Any) -> None:
        if plan.stage == self.dies_at:
            self.kill()
        super().begin(job, plan, *of)


MADE: list[Gpu] = []


def gpus(count: int, dies_at: dict[int, str]) -> list[ThreadWorker]:
    made = []
    for number in range(count):
        worker = ThreadWorker(station := Gpu([str(number)], str(RECORDING / "raw")), f"gpu {number}", f"node {number}")
        station.dies_at, station.kill = dies_at.get(number, ""), worker.kill
        made.append(worker)
        MADE.append(station)
    return made


Tune = Callable[..., str]


@pytest.fixture(scope="module")
def rows_here() -> dict[str, str]:
    return {}


@pytest.fixture
def here(tune: Tune, rows_here: dict[str, str]) -> str:
    """The results file of a run on this machine alone; runs once."""
    return rows_here.setdefault("rows", "") or rows_here.update(rows=tune("here")) or rows_here["rows"]


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tune]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def on(name: str, workers: list[ThreadWorker] | None = None, *more: str) -> str:
        """The results file of a run on these GPUs, or on this machine."""
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        words = [*ARGUMENTS, "-o", "tuned.yaml", "--output_dir", "runs", *more]
        arguments = options.build_parser().parse(words)
        console = Console(file=io.StringIO())
        run_options = cli.run_options_from(arguments, cli.read_sizes(arguments, console))
        machine = Machine((), {}, "")
        cluster = OnCluster(machine, Stations(tuple((one, "") for one in workers), ())) if workers else None
        assert run.tune(run_options, console, console, cluster) == 0
        return OTHER_IN_THE_HEADER.sub("", Path("tuned.yaml").read_text())

    yield on
    while MADE:
        MADE.pop().close()


def test_rows_are_those_of_a_local_run_on_one_gpu_or_four(tune: Tune, here: str) -> None:
    assert tune("one", gpus(1, {})) == here
    workers = gpus(4, {})
    assert tune("four", workers) == here
    assert sum("begin" in worker.calls for worker in workers) == 3  # as many as there are sizes


@pytest.mark.parametrize("stage", ["screen", "finals", "verify"])
def test_a_machine_that_dies_in_the_middle_changes_no_row(tune: Tune, here: str, stage: str, tmp_path: Path) -> None:
    workers = gpus(4, {0: stage, 2: stage})
    assert tune("disturbed", workers) == here
    assert [worker.alive for worker in workers][:3] != [True] * 3
    (store,) = (tmp_path / "disturbed" / "runs").glob("*/run.sqlite")
    with sqlite3.connect(store) as base:
        states = dict(base.execute("SELECT state, COUNT(*) FROM leases GROUP BY state").fetchall())
        items = dict(base.execute("SELECT state, COUNT(*) FROM items GROUP BY state").fetchall())
    assert states["lost"] >= 1 and set(items) == {"finished"}


def test_when_all_machines_are_gone_the_run_ends_and_goes_on_later(tune: Tune, here: str) -> None:
    with pytest.raises(EnvironmentFault, match="is gone"):
        tune("dies", gpus(2, {0: "finals", 1: "finals"}))
    later = gpus(1, {})
    assert tune("dies", later) == here


def test_the_gpu_that_was_given_is_the_only_one_seen(tmp_path: Path) -> None:
    of_nvidia = {"CUDA_VISIBLE_DEVICES": "7"}
    show_only(["3"], of_nvidia, is_amd=False)
    assert of_nvidia == {"CUDA_VISIBLE_DEVICES": "3"}
    of_amd = {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0", "HOME": "x"}
    show_only(["5"], of_amd, is_amd=True)
    assert of_amd == {"ROCR_VISIBLE_DEVICES": "5", "HOME": "x"}
