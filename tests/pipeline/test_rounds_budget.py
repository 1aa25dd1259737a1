"""Rounds of a search under a budget, or that a wish to end cuts short."""

from __future__ import annotations

from pathlib import Path

import pytest
from round_batches import NAMES, ONE, Batch, CompilesSome, Pairs, Stubborn, clocked, statuses
from tuning import StandInGpu

from gemm_tuner.launch.plan import SCREEN, Plan
from gemm_tuner.measure.budget import Cost, Pace
from gemm_tuner.space.size_state import Named

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_a_wish_to_end_is_heard_after_the_round_is_saved(tmp_path: Path) -> None:
    def press_ctrl_c(plan: Plan) -> None:
        batch.session.limits.interruption.request()

    batch = Batch(tmp_path, StandInGpu(before=press_ctrl_c))
    with pytest.raises(KeyboardInterrupt):
        batch.run()
    assert len(batch.plans) == 1
    assert [timing.name for timing in batch.session.store.timings(ONE, SCREEN)] == NAMES[:2]


def test_a_budget_leaves_a_share_for_the_finals(tmp_path: Path) -> None:
    def pass_time(plan: Plan) -> None:
        clock.now_s += 40.0

    batch = Batch(tmp_path, StandInGpu(before=pass_time), budget_s=100.0)
    clock = clocked(batch.session)
    batch.run()
    assert len(batch.plans) == 2  # at 0 and 40 s; from 70 s on the time is for the finals
    assert all(plan.deadline > 0 for plan in batch.plans)


def test_compiling_leaves_a_share_of_a_budget_for_timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And for a profiler to start: 5 of the 10 s of a start are before its first kernel, 5 behind its last."""
    batch = Batch(tmp_path, budget_s=100.0)
    clock = clocked(batch.session)
    monkeypatch.setattr(Pace, "start", lambda self: Cost(10.0, 0.0))

    at_s: list[float] = []

    class UsesItsTime(CompilesSome):
        def compile_sizes(self, wanted: Named, title: str, until: float, then: Pairs) -> None:
            clock.now_s = until
            at_s.append(until - batch.session.limits.budget.began)
            super().compile_sizes(wanted, title, until, then)

    batch.run(UsesItsTime())
    assert at_s == pytest.approx([30.0, 45.0, 52.5])  # halves of what is left until 60 s; finals have the last 30
    assert len(batch.plans) == 3


def test_what_the_deadline_cut_off_is_no_failure(tmp_path: Path) -> None:
    def pass_time(plan: Plan) -> None:
        clock.now_s += 80.0

    batch = Batch(tmp_path, StandInGpu(before=pass_time, statuses={NAMES[1]: None}), budget_s=100.0)
    clock = clocked(batch.session)
    batch.run()
    assert statuses(batch.states[0]) == {NAMES[0]: "ok"}


def test_without_a_budget_there_is_no_deadline(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.run()
    assert {plan.deadline for plan in batch.plans} == {0.0}


def test_a_search_that_never_ends_is_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.rounds.MOST_ROUNDS", 4)
    batch = Batch(tmp_path, search=Stubborn())
    with pytest.raises(AssertionError, match="asked for more than 4 rounds"):
        batch.run()
    assert len(batch.plans) == 1  # it was timed once all the same
