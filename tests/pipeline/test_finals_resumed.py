"""Finals of a run that goes on: which processes are kept, and which are had again."""

from __future__ import annotations

from pathlib import Path

import pytest
from finals_match import ONE, SURE, TWO, UNSURE, A, B, C, Match, Uncertain
from tuning import StandInGpu, finals_of, limit, scripts_of

from gemm_tuner.core.records import Status, Timing
from gemm_tuner.decide.finals_plan import FinalsPlan
from gemm_tuner.launch.plan import AA_TEST, FINALS, VENDOR, Plan, Work
from gemm_tuner.measure.budget import Budget
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.pipeline.run_identity import gpu_labels
from gemm_tuner.store.overruled import Overruled

pytestmark = pytest.mark.usefixtures("in_a_folder")

CONTRADICTED = {1: {A: 1.2}, 3: {A: 1.2}}


def test_what_was_overruled_in_the_publishing_processes_is_known_in_a_run_that_goes_on(tmp_path: Path) -> None:
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.02, C: 1.5}, (0.0, 0.0, 0.0), {1: {A: 1.2}, 3: {A: 1.2}}))
    finals = match.run()
    resumed = finals_of(match.session, scripts_of(match.states), [match.gpu])
    resumed.restore(match.states, match.states)
    for one in (finals, resumed):
        assert one.rankings[ONE].order[0] == B
        assert list(one.overruled(match.states[0], B)) == [A] and one.overruled(match.states[0], C) == {}
    match.gpu = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0})
    match.finals = finals_of(match.session, scripts_of(match.states), [match.gpu])
    match.finals.next_process = finals.next_process
    assert match.run().overruled(match.states[0], A) == {}  # of other finals


def test_a_run_that_goes_on_keeps_the_first_of_a_tie_that_publishing_decided(tmp_path: Path) -> None:
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.0, C: 1.5}, SURE))
    assert match.run().rankings[ONE].order[0] == A
    Overruled(match.session.store).keep(ONE, A, B)
    resumed = finals_of(match.session, scripts_of(match.states), [match.gpu])
    resumed.restore(match.states, match.states)
    assert [resumed.rankings[size].order[0] for size in (ONE, TWO)] == [B, A]


def test_a_process_that_a_killed_run_left_unfinished_is_had_again(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}))
    (gpu,) = gpu_labels(match.session.environment)
    match.session.store.add_timings([Timing(ONE, C, Status.OK, (1.0,) * 30)], FINALS, lambda _: gpu)
    assert match.run().rankings[ONE].order[0] == A
    assert len(match.session.store.timings(ONE, FINALS)) == 5 * 5


def test_processes_on_another_gpu_are_had_again(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}))
    whole = [Timing(ONE, name, Status.OK, (1.0,) * 30) for name in (A, B, C, VENDOR, AA_TEST)]
    match.session.store.add_timings(whole, FINALS, lambda _: "another GPU")
    match.run()
    assert [work.problem for work in match.works()[0]] == [ONE, TWO]
    assert match.session.results.published[ONE][A].us == pytest.approx(50.0)


def test_a_killed_run_goes_on_with_the_process_that_it_was_at(tmp_path: Path) -> None:
    """The kill comes in the third process, when the first of two sizes is through and stored."""

    def killed(plan: Plan) -> None:
        if plan.process == 2:
            raise KeyboardInterrupt

    us = {A: 50.0, B: 60.0, C: 70.0}
    match = Match(tmp_path, StandInGpu(us=us, jitter=0.002, after_a_size=killed))
    with pytest.raises(KeyboardInterrupt):
        match.run()
    assert {t.process for t in match.session.store.timings(ONE, FINALS)} == {0, 1, 2}
    assert {t.process for t in match.session.store.timings(TWO, FINALS)} == {0, 1}
    before = match.session.store.timings(ONE, FINALS)
    match.gpu = StandInGpu(us=us, jitter=0.002)
    match.finals = finals_of(match.session, scripts_of(match.states), [match.gpu])
    finals = match.run()
    assert [(plan.process, [work.problem for work in plan.work]) for plan in match.gpu.plans] == [
        (2, [TWO]),
        (3, [ONE, TWO]),
        (4, [ONE, TWO]),
    ]
    assert finals.timings[ONE][: len(before)] == before
    assert len(match.session.store.timings(TWO, FINALS)) == 5 * 5


# The planned processes alone, without and with a choice that is overruled; with further ones that choose.
@pytest.mark.parametrize(
    ("overlaps", "times", "moves", "at", "ran"),
    [
        (False, {A: 1.0, B: 1.2, C: 1.5}, SURE, {}, 5),
        (False, {A: 1.0, B: 1.0, C: 1.5}, UNSURE, {}, 7),
        (False, {A: 1.0, B: 1.02, C: 1.5}, SURE, CONTRADICTED, 5),
        (True, {A: 1.0, B: 1.2, C: 1.5}, SURE, {}, 5),
        (True, {A: 1.0, B: 1.0, C: 1.5}, UNSURE, {}, 7),
        (True, {A: 1.0, B: 1.02, C: 1.5}, SURE, {3: {A: 1.2}, 4: {A: 1.2}}, 5),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_goes_on_with_less_budget_uses_all_processes_that_are_stored(
    overlaps: bool,
    times: dict[str, float],
    moves: tuple[float, ...],
    at: dict[int, dict[str, float]],
    ran: int,
    processes: int,
    tmp_path: Path,
) -> None:
    """Planned, further and publishing ones, of fewer finalists than they had; nothing is timed."""
    match = Match(tmp_path, Uncertain(times, moves, at, overlaps))
    whole = match.run()
    assert len(match.gpu.plans) == ran
    stored, published = match.session.store.timings(ONE, FINALS), dict(match.session.results.published[ONE])
    match.gpu = Uncertain(times, moves, at, overlaps)
    limit(match.session, Budget(60.0, match.session.log.started - 60))
    resumed = match.finals = finals_of(match.session, scripts_of(match.states), [match.gpu])
    resumed.plan = FinalsPlan(processes=processes, finalists=2)
    resumed.run([(state, [A, B]) for state in match.states])
    assert not match.gpu.plans
    assert resumed.rankings[ONE].order == whole.rankings[ONE].order
    assert match.session.results.published[ONE] == published
    assert match.session.store.timings(ONE, FINALS) == stored


@pytest.mark.parametrize("lost", [(), (4,)], ids=["all stored", "the last planned one is not"])
@pytest.mark.parametrize(("moves", "at"), [(SURE, {}), (UNSURE, {}), (SURE, CONTRADICTED)])
def test_a_run_that_goes_on_without_a_budget_times_nothing_twice(
    moves: tuple[float, ...], at: dict[int, dict[str, float]], lost: tuple[int, ...], tmp_path: Path
) -> None:
    """Its processes ran one after another, and would start together without the budget."""
    times = {A: 1.0, B: 1.02 if at else 1.0, C: 1.5}
    match = Match(tmp_path, Uncertain(times, moves, at))
    unbounded = match.session.limits.budget
    limit(match.session, Budget(10_000.0, match.session.log.started))
    whole = match.run()
    stored = match.session.store.timings(ONE, FINALS)
    for number in lost:
        for size in (ONE, TWO):
            match.session.store.drop_process(size, FINALS, number)
    match.gpu = Uncertain(times, moves, at, overlaps=True)
    limit(match.session, unbounded)
    resumed = match.finals = finals_of(match.session, scripts_of(match.states), [match.gpu])
    match.run()
    assert [plan.process for plan in match.gpu.plans] == [*lost]
    assert resumed.rankings[ONE].order == whole.rankings[ONE].order
    assert lost or match.session.store.timings(ONE, FINALS) == stored
    roles = {timing.process: timing.role for timing in match.session.store.timings(ONE, FINALS)}
    assert roles == {timing.process: timing.role for timing in stored}


def test_of_a_process_that_only_one_size_has_stored_that_size_keeps_it(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002))
    match.run()
    scripts = scripts_of(match.states)
    for size, process in ((TWO, 2), (TWO, 3), (TWO, 4), (ONE, 3), (ONE, 4)):  # as a kill in process 2 leaves them
        match.session.store.drop_process(size, FINALS, process)
    match.gpu.plans.clear()
    limit(match.session, Budget(60.0, match.session.log.started - 60))
    match.finals = finals_of(match.session, scripts, [match.gpu], FinalsPlan(processes=1))
    match.run()
    assert not match.gpu.plans
    assert [match.session.results.published[size][A].processes for size in (ONE, TWO)] == [3, 2]


class Lossy(StandInGpu):
    """Whose publishing processes lack one finalist of the first size in their traces."""

    lost = ""

    def _time(self, plan: Plan, work: Work) -> dict[Key, Timing]:
        found = super()._time(plan, work)
        if plan.process in (1, 3) and work.problem == ONE:
            found[ONE, self.lost] = Timing(ONE, self.lost, Status.MISSING_IN_TRACE)
        return found


@pytest.mark.parametrize("lost", [A, VENDOR, AA_TEST])
def test_what_the_traces_that_publish_lack_ends_neither_the_run_nor_a_resumed_one(lost: str, tmp_path: Path) -> None:
    gpu = Lossy(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002)
    gpu.lost = lost
    match = Match(tmp_path, gpu)
    finals = match.run()
    resumed = finals_of(match.session, scripts_of(match.states), [match.gpu])
    resumed.restore(match.states, match.states)
    for one in (finals, resumed):
        assert one.rankings[ONE].order == ((B, C) if lost == A else (A, B, C))
        assert lost not in match.session.results.published[ONE]
    assert match.states[0].rows[A]["status"] == ("missing_in_trace" if lost == A else "ok")
