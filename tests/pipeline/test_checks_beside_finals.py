"""Checks that are made beside finals: when they begin, and that a run ends as if they had been made afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import round_batches
import test_rivals
import test_serving
from round_batches import ONE, TWO
from test_default_config import LAYER, OTHERS
from tuning import SM_90, StandInGpu, limit, session, state_of

from gemm_tuner.compile.task_queue import TaskQueue
from gemm_tuner.core.errors import CannotWrite
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import CompileResult, Problem, Status, Timing
from gemm_tuner.decide.finals_plan import PROCESSES
from gemm_tuner.executors.local import LocalExecutor
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.launch.plan import FINALS, VERIFY, Plan, Work
from gemm_tuner.measure import gpu_watch
from gemm_tuner.measure.budget import Budget
from gemm_tuner.measure.gpu_watch import Sample
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning

CONFIGS = round_batches.CONFIGS[:4]
A, B, C, D = NAMES = round_batches.NAMES[:4]
IN_CUTE = KernelConfig("gemm_cute", 128, 144, 64, 8, 1, 0, 0)

pytestmark = pytest.mark.usefixtures("in_a_folder")


class CompilesAtOnce:
    """A compiler whose kernels are there as soon as it has heard of them."""

    workers = 1

    def __init__(self) -> None:
        self.tasks: TaskQueue | None = None
        self.has_all = threading.Event()

    def __enter__(self) -> CompilesAtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def run(self, tasks: TaskQueue) -> Iterator[tuple[CompileTask, CompileResult]]:
        self.tasks = tasks
        while not tasks.closed:
            while (task := tasks.take()) is not None:
                self.has_all.clear()
                yield task, CompileResult(task.name, task.specialization, Status.OK, registers=9, binary_hash=task.name)
            self.has_all.set()
            tasks.wait()

    def wait(self) -> None:
        """Until what was offered is compiled."""
        while self.tasks is not None and (len(self.tasks) or not self.has_all.wait(240)):
            time.sleep(0.001)


@dataclass
class Overlapping(StandInGpu):
    """The last of its planned finals reports when a check has ended, or after ``report_s``. Notes whether finals ran at
    a check, and what was checked."""

    overlaps: bool = True
    report_s: float = 240.0
    compiler: CompilesAtOnce = field(default_factory=CompilesAtOnce)
    checks: list[tuple[bool, list[str]]] = field(default_factory=list)
    checked: threading.Event = field(default_factory=threading.Event)
    timed: threading.Event = field(default_factory=threading.Event)
    left: set[int] = field(default_factory=lambda: set(range(PROCESSES)))
    running: int = 0

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        if plan.stage != FINALS:
            return super().timings(plan, folder, on_event, on_found)
        self.compiler.wait()
        self.running += 1
        run = super().timings(plan, folder, on_event, on_found)
        self.left.discard(plan.process)
        if not self.left:  # those of a stand-in do not take turns
            self.timed.set()
        assert plan.process != PROCESSES - 1 or self.checked.wait(self.report_s) or not self.report_s
        self.running -= 1
        return run

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        self.checks.append((self.running > 0, [name for work in plan.work for _, name in work.entries]))
        super().verdicts(plan, folder, on_event)
        self.checked.set()


def tuned(
    folder: Path,
    gpu: StandInGpu,
    monkeypatch: pytest.MonkeyPatch,
    configs: Sequence[KernelConfig] = CONFIGS,
    **how: Any,
) -> Session:
    compiler = gpu.compiler if isinstance(gpu, Overlapping) else CompilesAtOnce()
    monkeypatch.setattr(LocalExecutor, "compiler", lambda self: compiler)
    budget, sensor = how.pop("budget", 0.0), how.pop("sensor", None)
    of = session(folder, ONE, TWO, search="full", compile_stage=True, **how)
    of.gpus.sensor = sensor
    if budget:
        limit(of, Budget(budget))
    Tuning(of, [state_of(ONE, configs), state_of(TWO, configs)], [gpu]).run()
    return of


def chosen(of: Session) -> dict[Problem, str]:
    return {size: choice.config.name for size, choice in of.results.choices.items()}


def same_but_for_the_moment(one: Session, other: Session) -> None:
    assert chosen(one) == chosen(other)
    for size in (ONE, TWO):
        for name in NAMES:
            assert one.store.verdicts(size, name) == other.store.verdicts(size, name)
        assert one.store.failures(size) == other.store.failures(size)


@pytest.mark.parametrize("compare", ["", "finalists"])
@pytest.mark.parametrize("wrong", [(), (B,), (A, B, C, D)], ids=["all right", "the best wrong", "all wrong"])
def test_finalists_are_checked_while_finals_report_with_the_same_outcome(
    compare: str, wrong: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = {"us": {A: 50.0, B: 40.0, C: 60.0, D: 80.0}, "wrong": frozenset(wrong)}
    gpu, plain = Overlapping(**of), StandInGpu(**of)
    found = tuned(tmp_path / "ahead", gpu, monkeypatch, compare=compare)
    same_but_for_the_moment(found, tuned(tmp_path / "plain", plain, monkeypatch, compare=compare))
    during, names = gpu.checks[0]
    assert during and len(names) == (8 if compare else 2)  # one of each size, which three processes have decided
    if not wrong:
        assert len(gpu.checks) == 1 and set(chosen(found).values()) == {B}


@pytest.mark.parametrize("wrong", [(), (A,)], ids=["all right", "the best substitute wrong"])
def test_a_substitute_is_checked_with_the_winner_that_it_is_for(
    wrong: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check after the finals waits for a launcher to start, which takes as long as the finals of a size."""
    of = {"us": {IN_CUTE.name: 40.0, A: 50.0, B: 60.0, C: 70.0, D: 80.0}, "wrong": frozenset(wrong)}
    gpu, plain, configs = Overlapping(**of), StandInGpu(**of), (*CONFIGS, IN_CUTE)
    found = tuned(tmp_path / "ahead", gpu, monkeypatch, configs)
    after = tuned(tmp_path / "plain", plain, monkeypatch, configs)
    assert chosen(found) == chosen(after) == dict.fromkeys((ONE, TWO), IN_CUTE.name)
    for size in (ONE, TWO):
        substitute = found.results.choices[size].substitute
        assert substitute == after.results.choices[size].substitute and substitute is not None
        assert substitute.config.name == (B if wrong else A)
    assert gpu.checks[0] == (True, [IN_CUTE.name, A] * 2) and (len(gpu.checks) == 1) == (not wrong)


@dataclass
class FailsLater(Overlapping):
    """Its second process of finals finds that a configuration fails."""

    failing: str = ""

    def _time(self, plan: Plan, work: Work) -> dict[Key, Timing]:
        found = super()._time(plan, work)
        if plan.stage == FINALS and plan.process == 1 and self.failing:
            key = work.problem, self.failing
            found[key] = Timing(*key, Status.LAUNCH_ERROR, message="too many resources")
        return found


@pytest.mark.parametrize("fails", [False, True])
def test_a_rival_that_has_not_failed_is_checked_with_the_winner(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (test_rivals.OURS[at].name for at in (1, 0))
    gpu = FailsLater(us=test_rivals.TIMES, failing=first if fails else "")
    monkeypatch.setattr(LocalExecutor, "compiler", lambda self: gpu.compiler)
    layer, configs = cast(Any, test_rivals.LAYER), cast(Any, (*test_rivals.THEIRS, *test_rivals.OURS))
    of = session(tmp_path, layer, search="full", compile_stage=True)
    Tuning(of, [state_of(layer, configs)], [gpu]).run()
    ((during, names),) = gpu.checks
    assert during and names[0] == test_rivals.THEIRS[0].name
    assert [name for name in names if name.startswith("own_moe")] == [second if fails else first]
    assert dict(of.results.choices[layer].derived)["own_kernel"] == (second if fails else first)


def test_what_a_server_can_launch_is_checked_with_the_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Overlapping(us=test_serving.TIMES)
    monkeypatch.setattr(LocalExecutor, "compiler", lambda self: gpu.compiler)
    of = session(tmp_path, test_serving.SIZE, search="full", compile_stage=True, serve=("vllm",))
    Tuning(of, [state_of(test_serving.SIZE, test_serving.CONFIGS)], [gpu]).run()
    assert gpu.checks == [(True, [test_serving.WINNER.name, test_serving.GOOD.name])]
    assert [one.config for one in of.results.choices[test_serving.SIZE].served] == [test_serving.GOOD]


def test_a_baseline_is_checked_ahead_since_it_stays_where_nothing_clearly_beats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Overlapping(us={A: 50.0, B: 40.0, C: 60.0, D: 80.0})
    found = tuned(tmp_path, gpu, monkeypatch, older=dict.fromkeys((ONE, TWO), CONFIGS[1]), min_improvement_pct=50.0)
    assert set(chosen(found).values()) == {B} and len(gpu.checks) == 1
    gpu = Overlapping(us={A: 41.0, B: 40.0, C: 60.0, D: 80.0})
    found = tuned(tmp_path / "kept", gpu, monkeypatch, older={ONE: CONFIGS[0]}, min_improvement_pct=50.0)
    assert chosen(found) == {ONE: A, TWO: B} and len(gpu.checks) == 1


def test_what_is_launched_without_tuning_is_not_checked_where_it_was_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by --benchmark: a server's default is timed and checked only where it stands in the finals."""
    gpu, layer = Overlapping(us={OTHERS[0].name: 50.0}, report_s=0.0), cast(Any, LAYER)
    monkeypatch.setattr(LocalExecutor, "compiler", lambda self: gpu.compiler)
    of = session(tmp_path, layer, compile_stage=True)
    Tuning(of, [prepare.given_state(layer, OTHERS[0], SM_90)], [gpu], given=()).run_given()
    assert of.results.choices[layer].config == OTHERS[0]


@dataclass
class HotInChecks(Overlapping):
    """A GPU with its sensor, which heat slows down in a check, of which it gets most of its samples."""

    reads: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    hot: bool = False

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        during = self.running > 0
        assert self.timed.wait(self.report_s)  # a check has the GPU when the last finals have left it
        self.hot = True
        while during and self.reads[True] <= self.reads[False]:
            time.sleep(0.001)
        self.hot = False
        super().verdicts(plan, folder, on_event)

    def read(self, gpu: str) -> Sample:
        self.reads[self.hot] += 1
        return Sample(gpu, 1000.0, 500.0, 60.0, throttled=self.hot)


def test_finals_are_not_repeated_for_the_heat_of_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_watch, "PERIOD_S", 0.001)
    gpu = HotInChecks()
    found = tuned(tmp_path, gpu, monkeypatch, sensor=gpu)
    assert gpu.reads[True] and gpu.checks[0][0]
    assert sorted(plan.process for plan in gpu.plans if plan.stage == FINALS) == list(range(PROCESSES))
    assert not found.log.notes.get("gpu", {}).get("finals", {}).get("throttled")


@dataclass
class LosesTheCheck(Overlapping):
    """Its check ends with an error, and its finals with KeyboardInterrupt once they are cancelled."""

    error: BaseException = field(default_factory=KeyboardInterrupt)
    stop: threading.Event = field(default_factory=threading.Event)

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        raise self.error

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        self.checked = self.stop
        run = super().timings(plan, folder, on_event, on_found)
        if self.stop.is_set():
            raise KeyboardInterrupt
        return run

    def cancel(self) -> None:
        self.stop.set()


@pytest.mark.parametrize("error", [CannotWrite("the disk is full"), ZeroDivisionError("a bug")])
def test_a_check_that_ends_the_finals_says_why(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that the user has interrupted the run."""
    with pytest.raises((type(error), KeyboardInterrupt)) as raised:
        tuned(tmp_path, LosesTheCheck(error=error), monkeypatch)
    assert raised.type is type(error)


def test_nothing_is_checked_ahead_with_a_budget_or_in_turns_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for how, gpu in (({"budget": 1e4}, Overlapping(report_s=0.0)), ({}, Overlapping(report_s=0.0, overlaps=False))):
        found = tuned(tmp_path / str(gpu.overlaps), gpu, monkeypatch, **how)
        assert len(chosen(found)) == 2 and not any(during for during, _ in gpu.checks)
        # One that is made ahead cannot stop at the first right one.
        assert gpu.checks and all(plan.stop_at_first_right for plan in gpu.plans if plan.stage == VERIFY)
