"""Whole tunings under a budget on a stand-in GPU that is slow: a clock that its starts move, and what they ran."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from samples import config, problem
from tuning import StandInGpu, limit, scripts_of, session, state_of

from gemm_tuner.core.records import Status, Timing
from gemm_tuner.decide.finals_plan import LEAST_FINALISTS, FinalsPlan, fitted
from gemm_tuner.launch.plan import FINALS, REST_S, SCREEN, TIRING_CALL_US, VERIFY, Plan
from gemm_tuner.measure.budget import Budget, Cost, Costs
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import NOT_CHECKED, Tuning

SIZES = (problem(512, 512, 512), problem(64, 64, 64))
CONFIGS = tuple(config(num_stages=stages, num_warps=warps) for stages in (2, 3, 4, 5) for warps in (4, 8))
NCU = Cost(12.0, 0.02)
CHECK = Cost(5.0, 0.5)
LOOKED_S = 4.0  # from the start of the command to here: GPUs were looked for
FIFTH = 1.2


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day stands still: what this machine takes for a run is no part of it."""
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s)
    monkeypatch.chdir(tmp_path)


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class SlowGpu(StandInGpu):
    """Each start and each check moves the clock by what it costs. A check looks at its deadline."""

    clock: Clock = field(default_factory=Clock)
    start: Cost = NCU
    check: Cost = CHECK

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        run = super().timings(plan, folder, on_event, on_found)
        run.seconds = self.start.of(sum(len(timing.samples_us) for timing in run.timings.values()))
        self.clock.now_s += run.seconds
        return run

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        left_s = plan.deadline - time.time() if plan.deadline else float("inf")
        works = [work for index, work in enumerate(plan.work) if self.check.of(index) < left_s]
        self.clock.now_s += self.check.of(len(works))
        super().verdicts(Plan(VERIFY, plan.scripts, tuple(works), plan.method), folder, on_event)


class Run:
    """A tuning of two sizes that begins LOOKED_S after its command."""

    def __init__(self, folder: Path, budget_s: float, costs: Costs | None = None, **gpu: Any) -> None:
        self.gpu = SlowGpu(clock=Clock(), jitter=0.002, **gpu)
        made: Session = session(folder, *SIZES, search="full", compile_stage=False)
        limit(made, Budget(budget_s, self.gpu.clock(), self.gpu.clock), costs or Costs(), "ncu")
        self.session = made
        self.gpu.clock.now_s += LOOKED_S
        self.said = made.limits.pace.lengthened(len(SIZES))
        Tuning(made, [state_of(size, CONFIGS) for size in SIZES], [self.gpu]).run()

    @property
    def took_s(self) -> float:
        return self.gpu.clock.now_s

    def stages(self) -> Counter[str]:
        return Counter(plan.stage for plan in self.gpu.plans)


@pytest.fixture
def costs(tmp_path: Path) -> Costs:
    """As an earlier run on this machine has left them."""
    (tmp_path / "before").mkdir()
    known = Costs(tmp_path / "costs.json")
    Run(tmp_path / "before", 600.0, known)
    return Costs(tmp_path / "costs.json")


@pytest.mark.parametrize("budget_s", [40.0, 60.0, 90.0, 150.0, 300.0])
def test_the_whole_run_is_within_a_fifth_of_its_budget(budget_s: float, costs: Costs, tmp_path: Path) -> None:
    run = Run(tmp_path, budget_s, costs)
    assert run.said == "" and run.took_s <= FIFTH * budget_s
    assert len(run.session.results.choices) == len(SIZES)
    assert run.stages()[VERIFY] == 1 and run.stages()[FINALS] >= 1


def test_a_first_run_is_too_though_costs_are_only_guessed(tmp_path: Path) -> None:
    run = Run(tmp_path, 60.0)
    assert run.took_s <= FIFTH * 60.0 and len(run.session.results.choices) == len(SIZES)


def test_more_time_buys_more_processes(costs: Costs, tmp_path: Path) -> None:
    processes = []
    for budget_s in (40.0, 90.0, 150.0, 900.0):
        (tmp_path / str(budget_s)).mkdir()
        run = Run(tmp_path / str(budget_s), budget_s, costs)
        processes.append(run.stages()[FINALS])
    assert processes == sorted(processes) and processes[0] == 1 and processes[-1] >= FinalsPlan().processes


def test_where_starts_take_longer_than_planned_fewer_processes_run(costs: Costs, tmp_path: Path) -> None:
    run = Run(tmp_path, 300.0, costs, start=Cost(3 * NCU.start_s, 3 * NCU.each_s))
    assert run.stages()[FINALS] < FinalsPlan().processes and run.took_s <= FIFTH * 300.0
    assert len(run.session.results.choices) == len(SIZES)


def test_a_short_budget_has_one_process_that_chooses_and_publishes(costs: Costs, tmp_path: Path) -> None:
    run = Run(tmp_path, 40.0, costs)
    assert run.stages() == {SCREEN: 1, FINALS: 1, VERIFY: 1} or run.stages() == {FINALS: 1, VERIFY: 1}
    assert {choice.processes for choice in run.session.results.choices.values()} == {1}


def test_below_the_floor_the_run_says_so_and_ends_at_the_floor(costs: Costs, tmp_path: Path) -> None:
    """What the model finds fastest goes into one process of finals without screening."""
    run = Run(tmp_path, 5.0, costs)
    floor_s = LOOKED_S + run.session.limits.pace.floor_s(len(SIZES))
    assert "5 s is too short" in run.said and f"{run.session.limits.budget.total_s:.0f} s" in run.said
    assert run.stages() == {FINALS: 1, VERIFY: 1} and run.took_s <= FIFTH * floor_s
    assert len(run.session.results.choices) == len(SIZES)
    (finals,) = (plan for plan in run.gpu.plans if plan.stage == FINALS)
    assert all(len(work.entries) == LEAST_FINALISTS and work.rounds < FinalsPlan().rounds for work in finals.work)


def test_at_the_floor_every_size_is_checked_also_where_a_start_takes_longer_than_before(
    costs: Costs, tmp_path: Path
) -> None:
    run = Run(tmp_path, 5.0, costs, check=Cost(30.0, 30.0))
    assert run.session.limits.budget.left_s() < 0
    assert len(run.session.results.choices) == len(SIZES) and not run.session.results.failures


def test_a_check_that_the_budget_cuts_off_leaves_a_size_without_a_configuration(costs: Costs, tmp_path: Path) -> None:
    """Checks take far longer than they did before: the first size has one, the second is not begun."""
    run = Run(tmp_path, 60.0, costs, check=Cost(2.0, 60.0))
    assert len(run.session.results.choices) == 1
    assert list(run.session.results.failures.values()) == [NOT_CHECKED]


def test_a_check_may_be_a_little_late(costs: Costs, tmp_path: Path) -> None:
    """Starts take 1.3 times as long as before, so that finals end when the budget is nearly over."""
    run = Run(tmp_path, 40.0, costs, start=Cost(1.3 * NCU.start_s, 1.3 * NCU.each_s))
    assert 40.0 < run.took_s <= FIFTH * 40.0 and len(run.session.results.choices) == len(SIZES)


def test_every_plan_has_its_deadline_within_the_budget(costs: Costs, tmp_path: Path) -> None:
    at: dict[str, list[float]] = {}

    class Noted(SlowGpu):
        def note(self, plan: Plan) -> None:
            at.setdefault(plan.stage, []).append(self.clock.now_s + plan.deadline - time.time())

    gpu = Noted(clock=Clock(), jitter=0.002)
    gpu.before = gpu.note
    made = session(tmp_path, *SIZES, search="full", compile_stage=False)
    limit(made, Budget(90.0, 0.0, gpu.clock), costs, "ncu")
    Tuning(made, [state_of(size, CONFIGS) for size in SIZES], [gpu]).run()
    report_and_check_s = made.limits.pace.finals_reserve_s(len(SIZES))
    assert all(deadline <= 90.0 - report_and_check_s + 1 for deadline in at[FINALS])
    assert all(deadline < min(at[FINALS]) for deadline in at[SCREEN])


@pytest.mark.parametrize(
    ("left_s", "expected"),
    [
        (1e9, (8, 30, 5)),
        (5 * 10.0 + 5 * 2 * (10 * 30 * 0.1 + REST_S), (8, 30, 5)),  # all of it, just
        (5 * 10.0 + 5 * 2 * (8 * 30 * 0.1 + REST_S), (6, 30, 5)),
        (5 * 10.0 + 5 * 2 * (4 * 30 * 0.1 + REST_S), (2, 30, 5)),
        (5 * 10.0 + 5 * 2 * (4 * 9 * 0.1 + REST_S), (2, 9, 5)),
        (4 * 10.0 + 4 * 2 * (4 * 5 * 0.1 + REST_S), (2, 5, 4)),
        (12.0, (2, 5, 1)),
        (-5.0, (2, 5, 1)),
    ],
)
def test_what_is_left_decides_over_finalists_then_rounds_then_processes(
    left_s: float, expected: tuple[int, int, int]
) -> None:
    """Two sizes, 10 s a start, 0.1 s a call, REST_S of rest a size; vendor and A/A calls beside them."""
    plan = fitted(FinalsPlan(processes=5), 2, 2, left_s + 1e-6, Cost(10.0, 0.1))
    assert (plan.finalists, plan.rounds, plan.processes) == expected
    assert plan.rounds_at(1.0) <= FinalsPlan().rounds or expected == (8, 30, 5)


def test_no_rest_is_counted_for_sizes_of_short_calls() -> None:
    left_s = 5 * 10.0 + 5 * (2 * 10 * 30 * 0.1 + REST_S) + 1e-6  # one rest a process
    plans = [fitted(FinalsPlan(processes=5), 2, tiring, left_s, Cost(10.0, 0.1)) for tiring in (0, 1, 2)]
    assert [plan.finalists for plan in plans] == [8, 8, 7]


@pytest.mark.parametrize(("us", "finalists"), [(TIRING_CALL_US - 1, 8), (TIRING_CALL_US + 1, 7)])
def test_a_size_is_one_of_long_calls_by_its_screening(us: float, finalists: int, tmp_path: Path) -> None:
    """The budget leaves time for all finals without a rest, and for a bit less with one a process."""
    made = session(tmp_path, *SIZES)
    limit(made, Budget(), Costs(), "ncu")
    states = [state_of(size, CONFIGS) for size in SIZES]
    states[0].record_timing(Timing(SIZES[0], CONFIGS[0].name, Status.OK, (us,) * 5), SCREEN)
    plan, checks_s = FinalsPlan(), made.limits.pace.check().of(len(SIZES))
    calls = len(SIZES) * (plan.finalists + 2) * plan.rounds
    finals_s = plan.processes * made.limits.pace.start().of(calls)
    limit(made, Budget(checks_s + finals_s + 1e-3, 0.0, Clock()))
    assert Tuning(made, states, [StandInGpu()]).picker.plan.finalists == finalists


def test_a_plan_that_asks_for_less_than_the_least_keeps_it() -> None:
    plan = fitted(FinalsPlan(finalists=1, rounds=3, processes=2), 1, 1, 0.0, Cost(10.0, 0.1))
    assert (plan.finalists, plan.rounds, plan.processes) == (1, 3, 1)


def test_waiting_for_the_gpu_takes_no_time_from_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run has the GPU for five minutes when this one, which has 100 s, is about to check."""
    size, only, now = problem(512, 512, 512), config(), [0.0]
    ours = session(tmp_path, size)
    budget = limit(ours, Budget(100.0, 0.0, clock=lambda: now[0]))
    state = state_of(size, [only])
    deadlines: list[float] = []

    @contextmanager
    def held() -> Iterator[None]:
        now[0] += 300
        budget.waited_s += 300
        yield

    class Gpu(StandInGpu):
        def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
            deadlines.append(plan.deadline - now[0])
            super().verdicts(plan, folder, on_event)

    monkeypatch.setattr(ours.gpus, "held", held)
    monkeypatch.setattr(time, "time", lambda: now[0])
    ours.check_stage(scripts_of([state]), None).run(Gpu(), [(state, [only.name])], lambda *_: None)
    assert deadlines == [110.0]
