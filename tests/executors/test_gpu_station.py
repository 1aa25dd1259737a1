"""A station holds its GPU's lock while plans run there, several at once where launchers take turns."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from samples import device, problem

from gemm_tuner.executors.cluster.gpu_station import Failed, Finished, GpuStation
from gemm_tuner.executors.cluster.setup import Setup
from gemm_tuner.launch.plan import FINALS, Method, Plan, Work
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.system import gpu_lock

PLAN = Plan(FINALS, (), (Work(problem(64, 64, 64), ()),), Method())


class Together(Launcher):
    """Times nothing before both plans have begun."""

    overlaps = True

    def __init__(self) -> None:
        self.both = threading.Barrier(2, timeout=20)

    def timings(self, *of: Any) -> StageRun:
        self.both.wait()
        return StageRun()

    def verdicts(self, *of: Any) -> None: ...


@pytest.fixture
def station(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuStation:
    monkeypatch.setenv("GEMM_TUNER_LOCK_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    one = GpuStation(["0"])
    one._launcher = Together()
    one._setup = Setup(("triton",), device("sm_90").target, "gemm", "cache", 2**30, locks=("the-gpu",), wait_s=0.0)
    return one


def last_of(station: GpuStation, job: str) -> Any:
    while True:
        for message in station.news(job, 5.0):
            if isinstance(message, (Finished, Failed)):
                return message


def test_plans_that_overlap_hold_the_lock_together_and_leave_it(station: GpuStation) -> None:
    for job in ("one", "two"):
        station.begin(job, PLAN, 0.0, (), ())
    assert [type(last_of(station, job)) for job in ("one", "two")] == [Finished, Finished]
    with gpu_lock.held(["the-gpu"], 0.0):
        pass  # raises GpuInUse if a plan has left it locked
    station.close()


def test_another_run_on_the_gpu_is_named_and_waited_for_no_longer_than_asked(station: GpuStation) -> None:
    with gpu_lock.held(["the-gpu"], 0.0):
        station.begin("one", PLAN, 0.0, (), ())
        failed = last_of(station, "one")
    assert isinstance(failed.error, gpu_lock.GpuInUse) and "in use by" in str(failed.error)
    station.close()
