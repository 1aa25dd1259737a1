"""Finals against a stand-in GPU: who contends, who wins, and when more rounds run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from finals_match import NOISE, ONE, SURE, TWO, A, B, C, Match, Uncertain
from tuning import StandInGpu, limit

from gemm_tuner.core.records import Role, Status, Timing
from gemm_tuner.decide.finals_plan import FinalsPlan
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.launch.plan import AA_TEST, FINALS, SCREEN, VENDOR, Method, Plan
from gemm_tuner.measure.budget import Budget
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.replay import Recording
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.space.size_state import SizeState

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_the_finalists_run_with_the_vendor_library_and_one_of_them_twice(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, drift=0.03, jitter=0.001))
    finals = match.run()
    for one, two in match.works():
        assert (one.problem, two.problem) == (ONE, TWO)
        assert [name for _, name in one.entries] == [A, B, C] and one.vendor and one.again == A
    assert {timing.name for timing in finals.timings[ONE]} == {A, B, C, VENDOR, AA_TEST}
    assert finals.rankings[ONE].order == (A, B, C)
    noise = finals.rankings[ONE].noise_pct
    assert noise is not None and 0 < noise < 0.2
    assert match.states[0].rows[A]["finals_us"] == pytest.approx(50.0, rel=0.04)
    ranked = finals.ranked(match.states[0])
    assert ranked.order == (A, B, C)
    assert ranked.vendor is not None and ranked.vendor.us == pytest.approx(90.0, rel=0.04)


def test_the_size_of_the_longest_calls_is_the_last_of_a_process(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}))
    for state, us in zip(match.states, (900.0, 9.0), strict=True):
        state.record_timing(Timing(state.problem, A, Status.OK, (us,)), SCREEN)
    match.run()
    assert [[work.problem for work in works] for works in match.works()] == [[TWO, ONE]] * 5


def test_three_processes_choose_and_two_others_publish_all_sizes_in_each(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002))
    finals = match.run()
    assert [plan.process for plan in match.gpu.plans] == [0, 1, 2, 3, 4]
    assert [[work.problem for work in works] for works in match.works()] == [[ONE, TWO]] * 5
    for timings in (finals.timings[ONE], match.session.store.timings(ONE, FINALS)):
        roles = {timing.process: timing.role for timing in timings}
        assert list(roles.values()).count(Role.CHOOSE) == 3 and list(roles.values()).count(Role.PUBLISH) == 2
    samples = [t.samples_us for t in finals.timings[ONE] if t.name == A and t.role == Role.PUBLISH]
    found = match.session.results.published[ONE][A]
    assert found.samples_us == samples[0] + samples[1]
    assert found.processes == 5 and found.spread_pct is not None
    row = match.states[0].rows[A]
    assert (row["finals_us"], row["finals_samples"]) == (round(found.us, 3), len(found.samples_us))


@pytest.mark.parametrize(("processes", "chose"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_fewer_processes_are_possible(processes: int, chose: int, tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002))
    match.finals.plan = FinalsPlan(processes=processes, rounds=20)
    sheet = match.run().sheets[ONE]
    assert (sheet.choosing.processes, sheet.all.processes) == (chose, processes)
    found = match.session.results.published[ONE][A]
    assert (found.spread_pct is None) == (processes == 1) == (found.low_us is None)


@pytest.mark.parametrize(("noise", "least", "most"), [(0.0005, 10, 10), (0.01, 18, 45), (0.05, 150, 240)])
def test_rounds_follow_the_noise_of_the_first_process(noise: float, least: int, most: int, tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=noise), iters=30)
    match.run()
    first, *others = [work.rounds for works in match.works() for work in works if work.problem == ONE]
    assert first == 30
    assert all(least <= rounds <= most for rounds in others)


def test_what_is_undecided_runs_in_further_processes_and_the_decided_does_not(tmp_path: Path) -> None:
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0)))
    finals = match.run()
    further = match.works()[5:]
    assert 1 <= len(further) <= 2
    for works in further:
        assert all({name for _, name in work.entries} == {A, B} for work in works)
    assert len(finals.sheets[ONE].all.column(C)) == 5 < len(finals.sheets[ONE].all.column(A))


@pytest.mark.parametrize("overlaps", [False, True])
def test_one_that_is_clearly_faster_where_figures_are_published_wins_by_those_that_had_not_chosen_it(
    overlaps: bool, tmp_path: Path
) -> None:
    chose, published = ((0, 1, 2), (3, 4)) if overlaps else ((0, 2, 4), (1, 3))
    at = {number: {A: 1.2, B: 0.9} for number in published}
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.02, C: 1.5}, SURE, at, overlaps))
    finals = match.run()
    assert sorted(plan.process for plan in match.gpu.plans) == list(range(5))
    assert finals.rankings[ONE].order == (B, A, C)
    sheet = finals.sheets[ONE]
    assert (sheet.choosing.processes, sheet.publishing.processes) == (5, 2)
    assert finals.ranked(match.states[0]).times[B].us == pytest.approx(102.0, rel=0.01)
    for timings in (finals.timings[ONE], match.session.store.timings(ONE, FINALS)):  # what tells of the noise
        assert {t.process for t in timings if t.role == Role.PUBLISH} == {*published}
    for name, publishes in ((B, chose), (A, range(5)), (C, published)):
        assert finals.published_by(ONE, name) == {*publishes}


@pytest.mark.parametrize("foreign", [B, C])
def test_what_cannot_win_neither_overrules_nor_ties(
    foreign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = property(lambda state: {name: one for name, one in state.kept.items() if name != foreign})
    monkeypatch.setattr(SizeState, "own", others)
    match = Match(
        tmp_path, Uncertain({A: 1.0, B: 1.02, C: 1.021}, SURE, {at: {A: 1.2, B: 1.0, C: 1.01} for at in (1, 3)})
    )
    finals = match.run()
    assert finals.rankings[ONE].order == ((C, A) if foreign == B else (B, A)) and foreign in finals.published[ONE]
    assert foreign not in finals.rankings[ONE].ties
    assert bool(finals.overruled(match.states[0], B)) == (foreign == C)


def test_an_interrupted_run_begins_no_further_processes(tmp_path: Path) -> None:
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0)))
    match.gpu.before = lambda plan: match.session.limits.interruption.request() if plan.process == 4 else None
    match.run()
    assert [plan.process for plan in match.gpu.plans] == [*range(5)]


def test_the_vendors_time_is_of_the_row_also_where_other_sizes_have_finals_again(tmp_path: Path) -> None:
    at = {number: {A: 1.2, VENDOR: 1.1} for number in (1, 3)}
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.02, C: 1.5}, SURE, at))
    finals, (_, two) = match.run(), match.states
    assert finals.published[ONE][VENDOR].us == pytest.approx(90)
    finals.publish_for(ONE, C)
    for _ in range(2):
        assert finals.published[ONE][VENDOR].us == pytest.approx(99)
        finals.run([(two, [A, B])])


@pytest.mark.parametrize("again", [{}, {6: {A: 1.3}, 8: {A: 1.3}}], ids=["holds", "contradicted anew"])
def test_a_contradiction_of_earlier_finals_is_forgotten(again: dict[int, dict[str, float]], tmp_path: Path) -> None:
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.02, C: 1.5}, SURE, {1: {A: 1.2}, 3: {A: 1.2}, **again}))
    finals, (one, _) = match.run(), match.states
    assert finals.rankings[ONE].order[0] == B
    for _ in range(2):  # also of finals that are in the store
        finals.next_process = 5
        finals.run([(one, [A, B, C])])
        assert (finals.rankings[ONE].order[0], bool(finals.overruled(one, B))) == ((B, True) if again else (A, False))
        assert finals.published[ONE][A].us == pytest.approx(111 if again else 100, rel=0.01)


class OfSizes(StandInGpu):
    """Times each size by a stand-in of its own."""

    def __init__(self, of: dict[GemmProblem, StandInGpu]) -> None:
        super().__init__()
        self.of = of

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        self.plans.append(plan)
        run = StageRun(starts=1)
        for work in plan.work:
            gpu = self.of[as_gemm(work.problem)]
            run.timings |= gpu.timings(replace(plan, work=(work,)), folder, on_event, on_found).timings
        return run


def test_further_processes_are_of_undecided_sizes_and_not_of_contradicted_ones(tmp_path: Path) -> None:
    undecided = Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.02, 0.0, 0.0))
    contradicted = Uncertain({A: 1.0, B: 1.005, C: 1.5}, SURE, {1: {A: 1.03}, 3: {A: 1.03}})
    match = Match(tmp_path, OfSizes({ONE: undecided, TWO: contradicted}))
    finals = match.run()
    assert sorted(plan.process for plan in match.gpu.plans) == [*range(7)]
    assert {timing.process for timing in finals.timings[ONE]} == {*range(7)}
    assert {timing.process for timing in finals.timings[TWO]} == {*range(5)}
    assert finals.rankings[TWO].order[0] == B


def test_what_further_processes_decide_may_be_contradicted_too(tmp_path: Path) -> None:
    """Then these publish as well, since they had not chosen the one that wins; and those that publish, what they
    contradict."""
    at = {1: {A: 1.05}, 3: {A: 1.05}, 5: {A: 0.96}, 6: {A: 0.96}}
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.02, 0.0, 0.0), at))
    finals = match.run()
    assert [plan.process for plan in match.gpu.plans] == [*range(7)]
    assert finals.rankings[ONE].order[0] == B
    assert (finals.published_by(ONE, B), finals.published_by(ONE, A)) == ({0, 2, 4, 5, 6}, {*range(7)})


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("moves", [SURE, (0.03, 0.0, 0.0)], ids=["decided", "undecided"])
def test_who_may_win_is_known_from_the_choosing_processes(
    moves: tuple[float, ...], overlaps: bool, tmp_path: Path
) -> None:
    gpu = Uncertain({A: 1.0, B: 1.0 if moves != SURE else 1.1, C: 1.5}, moves, {4 if overlaps else 1: {C: 0.1}})
    gpu.overlaps = overlaps
    match = Match(tmp_path, gpu)
    given = [(state, [C, B, A]) for state in match.states]
    assert [names for _, names in match.finals.works.leading(given, 2)] == [[C, B]] * 2
    during: list[list[str]] = []
    gpu.before = lambda plan: during.extend(
        names for _, names in match.finals.works.leading(given, 2) if plan.process > 4
    )
    finals = match.run()
    assert all(set(names) == {A, B} for names in during)
    assert (during == []) == (moves == SURE)
    assert all(len(names) == 1 and set(names) <= {A, B} for _, names in finals.works.leading(given, 2)) or not overlaps


@pytest.mark.parametrize("why", ["asked to end", "out of time"])
def test_no_further_process_where_none_is_possible(why: str, tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 100.0, B: 100.4, C: 120.0}, jitter=NOISE))
    if why == "asked to end":
        match.gpu.after_a_size = lambda plan: match.session.limits.interruption.request()
    else:
        limit(match.session, Budget(60.0, match.session.log.started - 60))
    assert match.run().rankings[ONE].order
    assert len(match.works()) == 1
    assert match.session.results.published[ONE][A].processes == 1


def test_a_recording_of_one_process_is_played_back_as_one(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 100.0, B: 100.4, C: 120.0}, jitter=NOISE))
    recording: Any = SimpleNamespace(finals_processes=lambda: {0}, finals_together=lambda: False)
    here = match.session.environment
    match.session.gpus.environment = Environment(here.device, here.gpus, here.machine, recording)
    assert match.run().rankings[ONE].order
    assert len(match.works()) == 1
    assert match.session.results.published[ONE][A].processes == 1


@pytest.mark.parametrize("together", [True, False])
def test_a_recording_is_played_back_with_the_roles_of_its_processes(together: bool, tmp_path: Path) -> None:
    """Those that started together chose first; a playback has one after another."""
    raw = tmp_path / "recorded"
    for number in range(5):
        (raw / f"{number}-finals" / "start00").mkdir(parents=True)
        plan = Plan(FINALS, ("a.py",), (), Method(), process=number, together=together)
        plan.write(raw / f"{number}-finals" / "start00" / "plan.json")
    match = Match(tmp_path, StandInGpu(us={A: 100.0, B: 110.0, C: 120.0}))
    here = match.session.environment
    recording = Recording(raw, here.machine, Nsys(), "2023.4", {})
    match.session.gpus.environment = Environment(here.device, here.gpus, here.machine, recording)
    roles = {timing.process: timing.role for timing in match.run().timings[ONE]}
    publishing = (3, 4) if together else (1, 3)
    assert roles == {number: Role.PUBLISH if number in publishing else Role.CHOOSE for number in range(5)}


def test_one_that_fails_in_the_finals_is_out(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={B: 60.0, C: 70.0}, statuses={A: Status.CRASHED}))
    finals = match.run()
    assert finals.rankings[ONE].order == (B, C)
    assert match.states[0].rows[A]["status"] == "crashed"


def test_what_failed_in_finals_that_died_is_not_ranked_by_its_screening(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(statuses=dict.fromkeys((A, B, C), Status.CRASHED)))
    screened = [Timing(ONE, name, Status.OK, (us,) * 5) for name, us in ((A, 9.0), (B, 7.0), (C, 8.0))]
    match.session.store.add_timings(screened, SCREEN)
    finals = match.run()
    assert finals.ranked(match.states[0]).order == ()
    assert finals.ranked(match.states[1]).order == ()


def test_a_size_whose_finals_died_keeps_the_order_of_its_screening(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(statuses={A: Status.CRASHED}))
    screened = [Timing(ONE, name, Status.OK, (us,) * 5) for name, us in ((A, 6.0), (B, 7.0), (C, 5.0))]
    match.session.store.add_timings(screened, SCREEN)
    match.finals.run([(match.states[0], [A])])
    assert match.finals.ranked(match.states[0]).order == (C, B)


def test_a_size_without_finalists_is_left_out(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu())
    match.finals.run([(match.states[0], []), (match.states[1], [A, B])])
    assert {work.problem for works in match.works() for work in works} == {TWO}
    assert ONE not in match.finals.rankings


def test_the_noise_of_all_sizes_is_kept_as_median_and_most(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002))
    finals = match.run()
    match.session.log.note_noise(one.noise_pct for one in finals.rankings.values())
    each = [finals.rankings[size].noise_pct or 0.0 for size in (ONE, TWO)]
    assert match.session.log.notes["noise_pct"] == (round(sum(each) / 2, 3), round(max(each), 3))
