"""What a run does with its GPUs beside timing: their locks, and who else is on them."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from nvml_recording import h200, install, process
from rich.console import Console
from samples import config, problem
from tuning import StandInGpu, limit, session, state_of

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EnvironmentFault
from gemm_tuner.launch.plan import FINALS, SCREEN, STAGES, VERIFY, Plan
from gemm_tuner.measure.budget import Budget
from gemm_tuner.measure.device import driver_name, lock_name
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.machine_check.gpus import other_users
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline.gpus import WAITING
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.system import nvml
from gemm_tuner.system.gpu_lock import held

SIZE = problem(512, 512, 512)
CONFIGS = tuple(config(num_stages=stages) for stages in (2, 3, 4))
# As sessions of tests name their GPUs, of which they know no UUID.
LOCKS = ["number-0", "number-1"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass
class WatchedGpu(StandInGpu):
    """Notes at each plan whether both GPUs are locked."""

    locked: list[tuple[str, bool]] = field(default_factory=list)

    def is_locked(self, name: str) -> bool:
        try:
            with held([name], wait_s=0):
                return False
        except EnvironmentFault:
            return True

    def look(self, plan: Plan) -> None:
        self.locked += [(plan.stage, self.is_locked(name)) for name in LOCKS]

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        self.look(plan)
        return super().timings(plan, folder, on_event, on_found)

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        self.look(plan)
        super().verdicts(plan, folder, on_event)


def a_session(folder: Path, **how: object) -> Session:
    one = session(folder, SIZE, gpus=2, search="full", compile_stage=False, **how)
    one.log.console = Console(file=io.StringIO(), width=1000)
    return one


def said(of: Session) -> str:
    file = of.log.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_every_plan_that_runs_on_a_gpu_runs_under_the_locks_of_all_gpus(tmp_path: Path) -> None:
    one = WatchedGpu()
    Tuning(a_session(tmp_path), [state_of(SIZE, CONFIGS)], [one, one]).run()
    assert {stage for stage, _ in one.locked} == {"screen", "finals", "verify"}
    assert all(locked for _, locked in one.locked)
    with held(LOCKS, wait_s=0):  # and afterwards they are free
        pass


def test_sizes_are_checked_on_the_gpus_that_timed_them(tmp_path: Path) -> None:
    sizes = [problem(512, 512, k) for k in (64, 128, 256, 512)]
    gpus = StandInGpu(), StandInGpu()
    of = session(tmp_path, *sizes, gpus=2, search="full", compile_stage=False)
    Tuning(of, [state_of(size, CONFIGS) for size in sizes], gpus).run()
    assert len(of.results.choices) == 4
    for one in gpus:
        stages = {stage: {w.problem for p in one.plans if p.stage == stage for w in p.work} for stage in STAGES}
        assert len(stages[VERIFY]) == 2 and stages[VERIFY] == stages[FINALS] == stages[SCREEN]


def test_the_locks_are_held_between_the_processes_of_finals_too(tmp_path: Path) -> None:
    """Whether there is time for another process is asked between two of them."""
    one, of = WatchedGpu(), a_session(tmp_path)
    between: list[bool] = []

    class Looking(Budget):
        def has_time_for(self, seconds: float) -> bool:
            between.append(one.is_locked(LOCKS[1]))
            return super().has_time_for(seconds)

    limit(of, Looking())
    Tuning(of, [state_of(SIZE, CONFIGS)], [one, one]).run()
    assert len(between) >= 4 and all(between)


HOLD = """
import sys
from gemm_tuner.system import nvml
from gemm_tuner.system.gpu_lock import held
with held(sys.argv[1:]):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def another() -> Iterator[subprocess.Popen[str]]:
    """A process that measures on the second GPU until it is told a line or killed."""
    root = Path(__file__).resolve().parents[2]
    one = subprocess.Popen([sys.executable, "-c", HOLD, LOCKS[1]], cwd=root, text=True, stdin=-1, stdout=-1)
    assert one.stdout is not None and one.stdout.readline() == "held\n"
    yield one
    one.kill()
    one.communicate()


def test_a_run_that_shall_not_wait_ends_and_names_the_holder(tmp_path: Path, another: subprocess.Popen[str]) -> None:
    gpu_ = StandInGpu()
    with pytest.raises(EnvironmentFault, match=f"process {another.pid} ") as caught:
        Tuning(a_session(tmp_path, gpu_wait_s=0.0), [state_of(SIZE, CONFIGS)], [gpu_, gpu_]).run()
    assert caught.value.exit_status == EXIT_ENVIRONMENT and not gpu_.plans


def test_a_run_waits_says_for_whom_and_goes_on(tmp_path: Path, another: subprocess.Popen[str]) -> None:
    class Hearer(io.StringIO):
        def write(self, text: str) -> int:
            if "waiting for GPU" in text:
                another.kill()
            return super().write(text)

    of = a_session(tmp_path)
    of.log.console = Console(file=Hearer(), width=1000)
    gpu_ = StandInGpu()
    Tuning(of, [state_of(SIZE, CONFIGS)], [gpu_, gpu_]).run()
    assert f"process {another.pid} (" in said(of) and len(of.results.choices) == 1
    assert of.log.stage_seconds[WAITING] > 0


def test_other_processes_are_named_once_before_anything_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, another: subprocess.Popen[str]
) -> None:
    stranger = 2**30
    install(monkeypatch, h200(ComputeRunningProcesses=[process(stranger, 1234)]), h200("GPU-2"))
    of = a_session(tmp_path)
    another.kill()
    seen: list[bool] = []

    def before(plan: Plan) -> None:
        seen.append(f"{stranger} (unknown, 1234 MiB)" in said(of))

    one = StandInGpu(before=before)
    Tuning(of, [state_of(SIZE, CONFIGS)], [one, one]).run()
    assert seen and all(seen)
    assert said(of).count("1234 MiB") == 1


@pytest.mark.parametrize(
    ("mode", "process_name", "fault"),
    [
        (0, "", ""),
        (2, "", "Prohibited"),
        (3, "", f"one process use it at a time, and {2**30} "),
        (3, "nvidia-cuda-mps-server", ""),
    ],
)
def test_a_gpu_that_is_kept_for_others_ends_the_run_before_anything_is_timed(
    mode: int, process_name: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if process_name:
        monkeypatch.setattr(nvml, "name_of", lambda pid: process_name)
    running = [] if mode == 2 else [process(2**30)]
    install(monkeypatch, h200(), h200("GPU-2", ComputeMode=mode, ComputeRunningProcesses=running))
    one = StandInGpu()
    with pytest.raises(EnvironmentFault, match=fault) if fault else contextlib.nullcontext():
        Tuning(a_session(tmp_path), [state_of(SIZE, CONFIGS)], [one, one]).run()
    assert bool(one.plans) == (not fault)


def test_the_runs_own_processes_are_no_others(monkeypatch: pytest.MonkeyPatch, another: subprocess.Popen[str]) -> None:
    """A child, and this process itself; a process that belongs to another tuner is another."""
    gpus = h200(ComputeRunningProcesses=[process(another.pid), process(os.getpid()), process(1)])
    install(monkeypatch, gpus)
    assert [one.pid for one in other_users("cuda", ["0"])] == [1]


def test_without_nvml_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, init_error="Driver Not Loaded")
    assert other_users("cuda", ["0"]) == []


@pytest.mark.parametrize(
    ("row", "visible", "named", "lock"),
    [
        ({"uuid": "GPU-12"}, "3", "GPU-12", "GPU-12"),
        ({"uuid": "GPU-12"}, "MIG-12", "MIG-12", "GPU-12"),
        ({"uuid": ""}, "MIG-12", "MIG-12", "number-MIG-12"),
        ({"uuid": "", "pci": "0000:c3:00"}, "3", "3", "0000:c3:00"),
        ({}, "3", "3", "number-3"),
    ],
)
def test_names_of_a_gpu(row: dict[str, str], visible: str, named: str, lock: str) -> None:
    assert driver_name(row, visible) == named and lock_name(row, named) == lock
