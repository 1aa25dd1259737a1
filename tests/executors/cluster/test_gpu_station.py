"""A station holds its GPU's lock while plans run there, several at once where launchers take turns."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
from nvml_recording import h200, install, process
from samples import device, problem
from thread_workers import ThreadWorker

from gemm_tuner.executors.cluster.gpu_station import Failed, Finished, GpuStation
from gemm_tuner.executors.cluster.remote_launcher import RemoteLauncher
from gemm_tuner.executors.cluster.setup import Setup
from gemm_tuner.launch.plan import FINALS, Method, Plan, Work
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.measure.launcher_process import LiveLauncher
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.store.store import Store
from gemm_tuner.system import gpu_lock

PLAN = Plan(FINALS, (), (Work(problem(64, 64, 64), ()),), Method())


class Together(Launcher):
    """Times nothing before both plans have begun."""

    overlaps = True

    def __init__(self) -> None:
        self.both = threading.Barrier(2, timeout=240)

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


def test_a_machine_of_a_cluster_compiles_and_launches_by_the_variables_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its own that change code are gone; where its libraries are stays its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    own = {"TRITON_LIBCUDA_PATH": "/its/own", "LD_LIBRARY_PATH": "/its/own"}
    there = {"DISABLE_LLVM_OPT": "1", "TRITON_F32_DEFAULT": "ieee", "LLVM_IR_ENABLE_DUMP": "1", **own}
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    asked = {"TRITON_F32_DEFAULT": "tf32x3"}
    of = {"cache_limit_bytes": 2**30, "finals": "nsys", "screening": "nsys", "variables": tuple(asked.items())}
    setup = Setup(("triton",), device("sm_90").target, "gemm", "cache", **of)  # type: ignore[arg-type]
    station = GpuStation(["0"])
    station.open(setup)
    assert isinstance(station._launcher, LiveLauncher)
    for environ in (station._launcher.environment(), os.environ):  # what it compiles with is the latter
        assert {name: environ[name] for name in there if name in environ} == {**asked, **own}
    station.close()


def test_a_recorded_routing_travels_as_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path means nothing where the launcher runs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (tmp_path / "driver").mkdir()
    monkeypatch.chdir(tmp_path / "driver")
    numpy.save("ids.npy", numpy.array([[3, 1]]))
    read: list[str] = []

    class Reading(Launcher):
        """Reads in a process as a launcher's is."""

        def timings(self, *of: Any) -> StageRun:
            code = "from gemm_tuner.moe import routing; print(routing.ids('ids.npy', 2, 2, 4, 0).tolist())"
            argv = [sys.executable, "-c", code]
            env = live.environment()
            child = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
            read.append(child.stdout.strip() or child.stderr)
            return StageRun()

        def verdicts(self, *of: Any) -> None: ...

    station, store = GpuStation(["0"]), Store(tmp_path / "run.sqlite")
    of = {"cache_limit_bytes": 2**30, "finals": "nsys", "screening": "nsys"}
    station.open(Setup(("triton",), device("sm_90").target, "moe", "cache", **of))  # type: ignore[arg-type]
    live = station._launcher
    assert isinstance(live, LiveLauncher)
    station._launcher = Reading()
    there = RemoteLauncher(ThreadWorker(station), False, store, tmp_path, lambda plan, there: (), lambda: False)
    layer = MoeProblem("vllm", M=2, E=4, N=64, K=64, topk=2, routing=("ids.npy",))
    plan = Plan(FINALS, (), (Work(layer, ((0, "name"),)),), Method())
    for _ in range(2):
        there.timings(plan, tmp_path)
        Path("ids.npy").unlink(missing_ok=True)  # it is sent once
    assert read == ["[[3, 1], [3, 1]]"] * 2
    station.close()
    store.close()


@pytest.mark.parametrize("mode", [0, 3])
def test_processes_of_a_gpu_for_one_alone_do_not_overlap(mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    install(monkeypatch, h200(), h200("GPU-2", ComputeMode=mode, ComputeRunningProcesses=[process(2**30)]))
    of = {"cache_limit_bytes": 2**30, "finals": "nsys", "screening": "nsys"}
    station = GpuStation(["1"])
    assert station.open(Setup(("triton",), device("sm_90").target, "gemm", "cache", **of)) == (mode == 0)  # type: ignore[arg-type]
    station._launcher = Together()
    station._launcher.both = threading.Barrier(1)
    station.begin("one", PLAN, 0.0, (), ())
    ended = last_of(station, "one")
    assert isinstance(ended, Finished) if mode == 0 else "one process use it at a time" in str(ended.error)
    station.close()
