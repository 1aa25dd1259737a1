"""Launchers open the GPUs ahead while nothing is timed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from round_batches import ONE, TWO, Batch, CompilesAll
from tuning import StandInGpu, scripts_of

from gemm_tuner.launch.plan import FINALS, SCREEN, VERIFY, Plan
from gemm_tuner.measure.openings import Openings
from gemm_tuner.pipeline.opens_ahead import AT_ONCE, OpensAhead
from gemm_tuner.pipeline.tune import Tuning

pytestmark = pytest.mark.usefixtures("in_a_folder")


@dataclass
class Opens(StandInGpu):
    """Opens for as long as it is let: ``now`` launchers do, and end when no other may begin."""

    asked: list[int] = field(default_factory=list)
    timed: list[int] = field(default_factory=list)  # how many were opening when a plan began
    stages: list[str] = field(default_factory=list)
    now: int = 0
    has_asked: threading.Event = field(default_factory=threading.Event)

    def open_ahead(self, plans: Sequence[Plan], at_once: int) -> Openings:
        self.asked.append(at_once)
        self.stages = [plan.stage for plan in plans]
        self.now = max(0, self.now - 1) if at_once == 0 else at_once
        self.has_asked.set()
        return Openings(self.now, 3)


def test_nobody_opens_a_gpu_while_another_is_timed(tmp_path: Path) -> None:
    """What has begun is waited for, on all GPUs."""
    gpus = [Opens(), Opens()]
    batch = Batch(tmp_path, *gpus)
    plans = batch.session.planner(scripts_of(batch.states)).opening(batch.states)
    opens = OpensAhead(batch.fleet, batch.session.gpus, (plans,))
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


def test_a_gpu_that_another_run_times_on_is_not_opened(tmp_path: Path) -> None:
    gpu = Opens()
    batch = Batch(tmp_path, gpu)
    plan = batch.session.planner(scripts_of(batch.states)).opening(batch.states)
    opens = OpensAhead(batch.fleet, batch.session.gpus, (plan,))
    with batch.session.gpus.held_if_free() as is_held:
        assert is_held
        opens.begin()
        opens.end()
    assert not gpu.asked
    opens.begin()
    assert gpu.has_asked.wait(60)
    opens.end()


@pytest.mark.parametrize("overlaps", [True, False])
def test_a_run_opens_for_finals_and_checks_where_their_processes_start_together(overlaps: bool, tmp_path: Path) -> None:
    gpu = Opens(overlaps=overlaps)
    batch = Batch(tmp_path, gpu, compile_stage=False)
    Tuning(batch.session, batch.states, [gpu]).run()
    assert gpu.stages == ([FINALS, VERIFY] if overlaps else [])
    assert [plan.stage for plan in gpu.plans].count(SCREEN) == 1 and gpu.now == 0


def test_launchers_open_for_all_sizes_and_the_vendor_library(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    plan = batch.session.planner(scripts_of(batch.states)).opening(batch.states)
    assert [(work.problem, work.entries, work.vendor) for work in plan.work] == [(ONE, (), True), (TWO, (), True)]
