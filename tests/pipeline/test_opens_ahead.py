"""Launchers open the GPUs ahead while nothing is timed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from round_batches import ONE, TWO, Batch, CompilesAll, clocked
from samples import problem
from tuning import StandInGpu, scripts_of

from gemm_tuner.core.records import Problem
from gemm_tuner.decide.finals_plan import MORE_PROCESSES, PROCESSES
from gemm_tuner.launch.plan import FINALS, SCREEN, VERIFY, Method, Plan, Work
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.openings import Openings
from gemm_tuner.pipeline.opens_ahead import AT_ONCE, FEWEST_SIZES, OpensAhead
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.search.plain import Full

pytestmark = pytest.mark.usefixtures("in_a_folder")

ALL = PROCESSES + MORE_PROCESSES


@dataclass
class Opens(StandInGpu):
    """Opens for as long as it is let: ``now`` launchers do, and end when no other may begin."""

    asked: list[int] = field(default_factory=list)
    most: list[int | None] = field(default_factory=list)
    timed: list[int] = field(default_factory=list)  # how many were opening when a plan began
    stages: list[tuple[str, ...]] = field(default_factory=list)
    named: list[int] = field(default_factory=list)  # of the finals' plan
    prepared: list[int] = field(default_factory=list)
    now: int = 0
    has_asked: threading.Event = field(default_factory=threading.Event)

    def prepare_finals(self, count: int) -> None:
        self.prepared.append(count)

    def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
        self.asked.append(at_once)
        self.most.append(most)
        self.stages.append(tuple(plan.stage for plan in plans))
        self.named += [sum(len(work.entries) for work in plan.work) for plan in plans if plan.stage == FINALS]
        self.now = max(0, self.now - 1) if at_once == 0 else at_once
        self.has_asked.set()
        return Openings(self.now, 3)


def test_nobody_opens_a_gpu_while_another_is_timed(tmp_path: Path) -> None:
    """What has begun is waited for, on all GPUs."""
    gpus = [Opens(), Opens()]
    batch = Batch(tmp_path, *gpus)
    plans = batch.session.planner(scripts_of(batch.states)).opening([(state, state.kept) for state in batch.states])
    opens = OpensAhead(batch.fleet, batch.session.gpus, FEWEST_SIZES, lambda: [plans])
    for gpu in gpus:

        def before(plan: Plan, gpu: Opens = gpu) -> None:
            gpu.timed.append(sum(one.now for one in gpus))

        gpu.before = before
    rounds = batch.rounds(CompilesAll(), opens)
    while asked := rounds.propose():
        for gpu in gpus:
            assert gpu.has_asked.wait(60)
            gpu.has_asked.clear()
        rounds.learn(rounds.time(asked))
    opens.end()
    assert [set(gpu.timed) for gpu in gpus] == [{0}, {0}] and {AT_ONCE, 0} <= set(gpus[0].asked)


@pytest.mark.parametrize(("takes_s", "times"), [(0.0, 1), (2.0, 2)])
def test_none_is_opened_between_parts_of_a_round_that_are_compiled_at_once(
    takes_s: float, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next part would wait for it."""
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", 6)
    batch = Batch(tmp_path, StandInGpu(stays=True), search=Full(12, 12))
    begun: list[bool] = []

    class Noted(OpensAhead):
        def begin(self) -> None:
            if not self._begun:
                begun.append(True)
            self._begun = True

    compiling = CompilesAll(clocked(batch.session), takes_s=2.0, later_s=takes_s)
    rounds = batch.rounds(compiling, Noted(batch.fleet, batch.session.gpus, 2))
    rounds.learn(rounds.time(rounds.propose()))
    assert len(begun) == times
    assert len(batch.plans) == times


def test_a_launcher_that_never_opens_the_gpu_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hangs(Opens):
        def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
            self.has_asked.set()
            return Openings(1, 0)

    monkeypatch.setattr("gemm_tuner.pipeline.opens_ahead.LIMIT_S", 0.01)
    gpu = Hangs()
    batch = Batch(tmp_path, gpu)
    plan = batch.session.planner(scripts_of(batch.states)).opening([(state, state.kept) for state in batch.states])
    opens = OpensAhead(batch.fleet, batch.session.gpus, FEWEST_SIZES, lambda: [plan])
    opens.begin()
    assert gpu.has_asked.wait(60)
    opens.end()
    assert gpu.prepared == [ALL]
    gpu.prepared.clear()
    opens.begin()
    opens.stop()
    assert not gpu.prepared  # nothing more will be timed


def test_further_processes_open_the_gpu_after_all_that_every_run_needs(tmp_path: Path) -> None:
    """They must not keep screening waiting for one that is needed sooner."""
    left = [1]

    class OpensOne(Opens):
        def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
            self.most.append(most)
            self.has_asked.set()
            return Openings(0, left[0])

    gpu = OpensOne()
    batch = Batch(tmp_path, gpu)
    plan = batch.session.planner(scripts_of(batch.states)).opening([(state, state.kept) for state in batch.states])
    opens = OpensAhead(batch.fleet, batch.session.gpus, FEWEST_SIZES, lambda: [plan])
    for is_left, most in ((1, PROCESSES), (0, PROCESSES), (1, ALL), (0, ALL)):
        left[0] = is_left
        gpu.most.clear()
        gpu.has_asked.clear()
        opens.begin()
        assert gpu.has_asked.wait(60)
        opens.end()
        assert set(gpu.most) == {most}


def test_a_gpu_that_another_run_times_on_is_not_opened(tmp_path: Path) -> None:
    gpu = Opens()
    batch = Batch(tmp_path, gpu)
    plan = batch.session.planner(scripts_of(batch.states)).opening([(state, state.kept) for state in batch.states])
    opens = OpensAhead(batch.fleet, batch.session.gpus, FEWEST_SIZES, lambda: [plan])
    with batch.session.gpus.held_if_free() as is_held:
        assert is_held
        opens.begin()
        opens.end()
    assert not gpu.asked
    opens.begin()
    assert gpu.has_asked.wait(60)
    opens.end()


def test_nothing_is_opened_on_the_machines_of_a_cluster(tmp_path: Path) -> None:
    gpus = Batch(tmp_path).session.gpus
    gpus.environment = replace(gpus.environment, remote=True)
    with gpus.held_if_free() as is_held:
        assert not is_held


@pytest.mark.parametrize(("overlaps", "fewest"), [(True, 2), (True, 3), (False, 2)])
def test_a_run_opens_for_finals_and_checks_where_their_processes_start_together(
    overlaps: bool, fewest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of finals and checks before these begin only if the run has many sizes, so that the search takes long."""
    monkeypatch.setattr("gemm_tuner.pipeline.opens_ahead.FEWEST_SIZES", fewest)
    gpu = Opens(overlaps=overlaps)
    batch = Batch(tmp_path, gpu, compile_stage=False)
    Tuning(batch.session, batch.states, [gpu]).run()
    assert set(gpu.stages) == ({(SCREEN, FINALS, VERIFY)} if overlaps else set())
    assert [plan.stage for plan in gpu.plans].count(SCREEN) == 1
    if overlaps:  # nothing is known before the first round; then up to eight of each size
        assert gpu.named[0] == 0 and set(gpu.named[1:]) <= {0, 12} and gpu.named[-1] == 12
    assert set(gpu.most) == ({PROCESSES if fewest == 2 else 0} if overlaps else set())
    # For those that choose, launchers wait from the first screening on.
    assert (ALL in gpu.prepared[:-2]) == (overlaps and fewest == 2)


def test_no_gpu_is_opened_ahead_where_a_size_may_lack_the_memory(tmp_path: Path) -> None:
    """Else a configuration would not fit in screening that does without the other contexts."""
    huge = problem(2**17, 2**17, 2**17)
    batch = Batch(tmp_path, sizes=[ONE, huge])
    stage = batch.session.check_stage(scripts_of(batch.states), None)
    assert stage.has_room(batch.states[:1]) and not stage.has_room(batch.states)
    gpu = Opens(overlaps=True)
    batch = Batch(tmp_path / "run", gpu, sizes=[ONE, huge], compile_stage=False)
    Tuning(batch.session, batch.states, [gpu]).run()
    assert gpu.plans and not gpu.asked


def test_launchers_open_for_all_sizes_and_the_vendor_library(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    plan = batch.session.planner(scripts_of(batch.states)).opening([(state, state.kept) for state in batch.states])
    assert [(work.problem, len(work.entries), work.vendor) for work in plan.work] == [(ONE, 6, True), (TWO, 6, True)]


def test_a_gpu_is_opened_for_the_finals_of_its_own_sizes(tmp_path: Path) -> None:
    seen: list[list[Problem]] = []

    class Told(StandInGpu):
        def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
            seen.append([work.problem for plan in plans for work in plan.work])
            return Openings(1, 0)

    fleet = Fleet([Told(), Told()], print)
    plan = Plan(FINALS, (), tuple(Work(size, (), vendor=True) for size in (ONE, TWO)), Method())
    assert fleet.open_ahead([plan], 2) == Openings(2, 0) and seen == [[ONE, TWO], [ONE, TWO]]
    fleet.home = {ONE: 1, TWO: 0}
    fleet.open_ahead([plan], 2)
    assert seen[2:] == [[TWO], [ONE]]
    fleet.open_ahead([replace(plan, stage=VERIFY)], 2)  # any GPU checks any size
    assert seen[4:] == [[ONE, TWO], [ONE, TWO]]
