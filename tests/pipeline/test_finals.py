"""Finals against a stand-in GPU: who contends, when more rounds run, and what a throttled block is worth."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from samples import config, problem
from tuning import StandInGpu, finals_of, limit, lost, scripts_of, session, state_of

from gemm_tuner.core.records import Role, Status, Timing
from gemm_tuner.decide.finals_plan import FinalsPlan
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.launch.plan import AA_TEST, FINALS, SCREEN, VENDOR, Plan, Work
from gemm_tuner.measure import gpu_watch
from gemm_tuner.measure.budget import Budget
from gemm_tuner.measure.gpu_watch import Sample
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_identity import gpu_labels
from gemm_tuner.store.overruled import Overruled

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
CONFIGS = tuple(config(num_stages=stages) for stages in (2, 3, 4))
A, B, C = (one.name for one in CONFIGS)
SURE, UNSURE = (0.0, 0.0, 0.0), (0.03, 0.0, 0.0)
CONTRADICTED = {1: {A: 1.2}, 3: {A: 1.2}}
NOISE = 0.03  # so that a difference of half a percent needs more rounds than one block has


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Uncertain(StandInGpu):
    """Whose processes move the first finalist by a pattern over choosing processes, and others by a table."""

    def __init__(
        self, times: dict[str, float], moves: tuple[float, ...], at: dict[int, dict[str, float]] | None = None
    ) -> None:
        super().__init__()
        self.times, self.moves, self.at = times, moves, at or {}

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        factors = {**self.times, **self.at.get(plan.process, {})}
        factors[A] += self.moves[plan.process // 2 % len(self.moves)]
        us = {name: 100.0 * factor for name, factor in factors.items()}
        of_process = StandInGpu(us, jitter=0.002, before=self.before, after_a_size=self.after_a_size, plans=self.plans)
        return of_process.timings(plan, folder, on_event, on_found)


class Match:
    """The finals of two sizes with three finalists each."""

    def __init__(self, folder: Path, gpu: StandInGpu, **options: Any) -> None:
        self.gpu, self.session = gpu, session(folder, ONE, TWO, **options)
        self.states = [state_of(size, CONFIGS) for size in (ONE, TWO)]
        self.finals = finals_of(self.session, scripts_of(self.states), [gpu])

    def run(self) -> Finals:
        self.finals.run([(state, list(state.kept)) for state in self.states])
        return self.finals

    def works(self) -> list[list[Work]]:
        return [list(plan.work) for plan in self.gpu.plans]


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


def test_further_processes_run_beside_each_other(tmp_path: Path) -> None:
    beside = threading.Barrier(2)
    gpu = Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0))
    gpu.overlaps, gpu.before = True, lambda plan: beside.wait(timeout=240) and None if plan.process > 4 else None
    match = Match(tmp_path, gpu)
    finals = match.run()
    assert sorted(plan.process for plan in gpu.plans) == [*range(7)]
    assert {t.role for t in finals.timings[ONE] if t.process > 4} == {Role.CHOOSE}


@pytest.mark.parametrize("overlaps", [False, True])
def test_further_processes_may_be_none(overlaps: bool, tmp_path: Path) -> None:
    gpu = Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0))
    gpu.overlaps = overlaps
    match = Match(tmp_path, gpu)
    match.finals.plan = FinalsPlan(more=0)
    match.run()
    assert len(gpu.plans) == 5


def test_one_that_is_clearly_faster_where_figures_are_published_wins_and_is_measured_again(tmp_path: Path) -> None:
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.02, C: 1.5}, (0.0, 0.0, 0.0), {1: {A: 1.2}, 3: {A: 1.2}}))
    finals = match.run()
    assert [plan.process for plan in match.gpu.plans] == list(range(7))
    assert finals.rankings[ONE].order[0] == B
    sheet = finals.sheets[ONE]
    assert (sheet.choosing.processes, sheet.publishing.processes) == (5, 2)
    assert finals.ranked(match.states[0]).times[B].us == pytest.approx(102.0, rel=0.02)
    stored = {t.process: t.role for t in match.session.store.timings(ONE, FINALS)}
    assert [number for number, role in stored.items() if role == Role.PUBLISH] == [5, 6]


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


def test_undecided_and_contradicted_sizes_share_further_processes(tmp_path: Path) -> None:
    undecided = Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.02, 0.0, 0.0))
    contradicted = Uncertain({A: 1.0, B: 1.005, C: 1.5}, SURE, {1: {A: 1.03}, 3: {A: 1.03}})
    match = Match(tmp_path, OfSizes({ONE: undecided, TWO: contradicted}))
    finals = match.run()
    assert sorted(plan.process for plan in match.gpu.plans) == [*range(7)]
    for size, role in ((ONE, Role.CHOOSE), (TWO, Role.PUBLISH)):
        for timings in (finals.timings[size], match.session.store.timings(size, FINALS)):
            assert {timing.role for timing in timings if timing.process > 4} == {role}
    assert finals.rankings[TWO].order[0] == B


def test_what_further_processes_decide_may_be_contradicted_too(tmp_path: Path) -> None:
    at = {1: {A: 0.98}, 3: {A: 0.98}, 5: {A: 1.04}, 6: {A: 1.04}}
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.01, 0.0, 0.0), at))
    finals = match.run()
    assert [plan.process for plan in match.gpu.plans] == [*range(9)]
    roles = [{t.process: t.role for t in timings if t.process > 4} for timings in finals.timings.values()]
    assert {5: Role.CHOOSE, 6: Role.CHOOSE, 7: Role.PUBLISH, 8: Role.PUBLISH} in roles


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
    match.finals.next_process = 7
    assert match.run().overruled(match.states[0], A) == {}  # of other finals


def test_a_run_that_goes_on_keeps_the_first_of_a_tie_that_publishing_decided(tmp_path: Path) -> None:
    match = Match(tmp_path, Uncertain({A: 1.0, B: 1.0, C: 1.5}, SURE))
    assert match.run().rankings[ONE].order[0] == A
    Overruled(match.session.store).keep(ONE, A, B)
    resumed = finals_of(match.session, scripts_of(match.states), [match.gpu])
    resumed.restore(match.states, match.states)
    assert [resumed.rankings[size].order[0] for size in (ONE, TWO)] == [B, A]


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


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("times", "moves", "at", "ran"),
    [
        ({A: 1.0, B: 1.2, C: 1.5}, SURE, {}, 5),
        ({A: 1.0, B: 1.0, C: 1.5}, UNSURE, {}, 7),
        ({A: 1.0, B: 1.02, C: 1.5}, SURE, CONTRADICTED, 7),
    ],
)
def test_a_run_that_goes_on_with_less_budget_uses_all_processes_that_are_stored(
    times: dict[str, float],
    moves: tuple[float, ...],
    at: dict[int, dict[str, float]],
    ran: int,
    processes: int,
    tmp_path: Path,
) -> None:
    """Planned, further and publishing ones, of fewer finalists than they had; nothing is timed."""
    match = Match(tmp_path, Uncertain(times, moves, at))
    whole = match.run()
    assert len(match.gpu.plans) == ran
    stored, published = match.session.store.timings(ONE, FINALS), dict(match.session.results.published[ONE])
    match.gpu = Uncertain(times, moves, at)
    limit(match.session, Budget(60.0, match.session.log.started - 60))
    resumed = match.finals = finals_of(match.session, scripts_of(match.states), [match.gpu])
    resumed.plan = FinalsPlan(processes=processes, finalists=2)
    resumed.run([(state, [A, B]) for state in match.states])
    assert not match.gpu.plans
    assert resumed.rankings[ONE].order == whole.rankings[ONE].order
    assert match.session.results.published[ONE] == published
    assert match.session.store.timings(ONE, FINALS) == stored


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


class Pair:
    """The finals of two sizes on two GPUs, the second one 1.6 times as slow; the first one is lost in a process."""

    def __init__(self, folder: Path, lost_in: int, *, sizes: int = 2, moves: tuple[float, ...] = (0.0,)) -> None:
        problems = [problem(512, 512, k) for k in (64, 128, 256, 512)[:sizes]]
        self.session = session(folder, *problems, gpus=2)
        self.states = [state_of(size, CONFIGS) for size in problems]
        self.labels = gpu_labels(self.session.environment)
        self.first, self.other = (Uncertain({A: us, B: us, C: 1.5 * us}, moves) for us in (1.0, 1.6))
        self.first.before = lambda plan: lost(plan) if plan.process == lost_in else None
        self.finals = finals_of(self.session, scripts_of(self.states), [self.first, self.other])

    def run(self) -> Finals:
        self.finals.run([(state, list(state.kept)) for state in self.states])
        return self.finals

    def timed_by(self, gpu: StandInGpu) -> list[GemmProblem]:
        return [work.problem for plan in gpu.plans for work in plan.work]


def assert_of_one_gpu(pair: Pair, size: GemmProblem, gpu: int, processes: int = 5) -> None:
    """In memory and in the store a size's finals are those of one GPU, three processes choosing and the others not."""
    assert pair.session.store.timed_on(size, FINALS) == {pair.labels[gpu]: processes * 5}
    for timings in (pair.finals.timings[size], pair.session.store.timings(size, FINALS)):
        roles = {timing.process: timing.role for timing in timings}
        assert len(timings) == processes * 5 and len(roles) == processes
        assert list(roles.values()).count(Role.PUBLISH) == 2
    assert pair.session.results.published[size][C].us == pytest.approx(150.0 if gpu == 0 else 240.0, rel=0.01)
    assert pair.session.results.published[size][C].spread_pct == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize("lost_in", range(5))
def test_a_size_whose_gpu_dies_is_had_anew_on_another_and_no_other_size_is(lost_in: int, tmp_path: Path) -> None:
    pair = Pair(tmp_path, lost_in)
    pair.run()
    moved = pair.timed_by(pair.first)[0]
    (stayed,) = {state.problem for state in pair.states} - {moved}
    assert pair.timed_by(pair.first) == [moved] * (lost_in + 1)
    assert pair.timed_by(pair.other).count(stayed) == 5 == pair.timed_by(pair.other).count(moved)
    assert_of_one_gpu(pair, moved, 1)
    assert_of_one_gpu(pair, stayed, 1)


def test_a_size_that_was_through_when_its_gpu_died_has_its_next_processes_all_on_another(tmp_path: Path) -> None:
    """In the third process the first GPU dies at the second of its two sizes."""
    pair = Pair(tmp_path, lost_in=-1, sizes=4)
    pair.first.after_a_size = lambda plan: lost(plan) if plan.process == 2 else None
    pair.run()
    for state in pair.states:
        assert_of_one_gpu(pair, state.problem, 1)


def test_a_size_that_needs_no_more_stays_with_a_gpu_that_died(tmp_path: Path) -> None:
    pair = Pair(tmp_path, lost_in=-1, sizes=4)
    pair.first.after_a_size = lambda plan: lost(plan) if plan.process == 4 else None
    pair.run()
    through, unfinished = pair.timed_by(pair.first)[:2]
    assert_of_one_gpu(pair, through, 0)
    assert_of_one_gpu(pair, unfinished, 1)


def test_a_size_whose_gpu_dies_in_a_further_process_has_all_planned_ones_on_another(tmp_path: Path) -> None:
    pair = Pair(tmp_path, lost_in=5, moves=(0.05, 0.0, 0.0))
    pair.run()
    moved = pair.timed_by(pair.first)[0]
    assert len(pair.first.plans) == 6
    assert list(pair.session.store.timed_on(moved, FINALS)) == [pair.labels[1]]
    assert len([timing for timing in pair.finals.timings[moved] if timing.name == C]) == 5
    assert pair.session.results.published[moved][C].us == pytest.approx(240.0, rel=0.01)


@pytest.mark.parametrize("lost_in", [1, 3])
def test_a_size_whose_gpu_dies_beside_other_processes_is_timed_on_one_gpu(lost_in: int, tmp_path: Path) -> None:
    pair = Pair(tmp_path, lost_in)
    pair.first.overlaps = pair.other.overlaps = True
    pair.run()
    moved = pair.timed_by(pair.first)[0]
    assert list(pair.session.store.timed_on(moved, FINALS)) == [pair.labels[1]]
    roles = {timing.process: timing.role for timing in pair.finals.timings[moved]}
    assert roles == {number: pair.finals.plan.role(number) for number in range(5)}
    assert pair.session.results.published[moved][A].us == pytest.approx(160.0, rel=0.02)


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("lost_in", [0, 1, 3])
def test_a_finalist_that_crashed_on_a_gpu_that_dies_is_not_run_on_another(
    lost_in: int, overlaps: bool, tmp_path: Path
) -> None:
    pair = Pair(tmp_path, -1)

    class Crashing(Uncertain):
        def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
            if plan.process == lost_in:
                self.plans.append(plan)
                (size,) = {work.problem for work in plan.work}
                on_found({(size, A): Timing(size, A, Status.CRASHED, message="2 machines died while it ran")})
                lost(plan)
            return super().timings(plan, folder, on_event, on_found)

    first = Crashing({A: 1.0, B: 1.0, C: 1.5}, (0.0,))
    first.overlaps = pair.other.overlaps = overlaps
    pair.finals = finals_of(pair.session, scripts_of(pair.states), [first, pair.other])
    pair.run()
    (moved,) = {work.problem for plan in first.plans for work in plan.work}
    again = [work for plan in pair.other.plans for work in plan.work if work.problem == moved]
    if not overlaps:  # what runs beside it may have begun
        assert all(A not in [name for _, name in work.entries] for work in again)
    assert A not in pair.finals.rankings[moved].order and pair.finals.rankings[moved].order[0] == B
    (state,) = (state for state in pair.states if state.problem == moved)
    assert A in state.named(Status.CRASHED)
    for timings in (pair.finals.timings[moved], pair.session.store.timings(moved, FINALS)):
        assert {timing.status for timing in timings if timing.name == A} == {Status.CRASHED}
        assert len([timing for timing in timings if timing.name == C]) >= 5


def test_three_processes_start_at_once_and_two_more_when_one_has_told_the_noise(tmp_path: Path) -> None:
    at_once, beside = threading.Barrier(3), threading.Barrier(4)

    def meet(plan: Plan) -> None:
        if plan.process < 3:
            at_once.wait(timeout=240)
        if plan.process != 1:  # the last two start while the first and the third still run
            beside.wait(timeout=240)

    gpu = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=NOISE, overlaps=True, before=meet)
    match = Match(tmp_path, gpu)
    finals = match.run()
    rounds = {plan.process: work.rounds for plan in gpu.plans for work in plan.work if work.problem == ONE}
    assert sorted(plan.process for plan in gpu.plans) == [*range(5)]
    assert rounds[0] == rounds[1] == rounds[2] < rounds[3] == rounds[4]
    assert {timing.process: timing.role for timing in finals.timings[ONE]} == {
        number: Role.PUBLISH if number % 2 else Role.CHOOSE for number in range(5)
    }


def screened(size: GemmProblem, us: float, noise: float, configs: int = 20) -> list[Timing]:
    """The screening of a size, whose clocks drift."""
    dice = random.Random(1)
    return [
        Timing(size, f"{at}", Status.OK, tuple(us * (1 + 0.1 * at) * (1 + noise * dice.gauss(0, 1)) for _ in range(5)))
        for at in range(configs)
    ]


def test_all_processes_start_at_once_where_screening_has_told_the_noise(tmp_path: Path) -> None:
    at_once = threading.Barrier(5)
    gpu = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002, overlaps=True)
    gpu.before = lambda plan: at_once.wait(timeout=240) and None
    match = Match(tmp_path, gpu)
    match.session.store.add_timings([*screened(ONE, 20.0, 0.01), *screened(TWO, 900.0, 0.03)], SCREEN)
    match.run()
    rounds = {work.problem: {one.rounds for works in match.works() for one in works if one.problem == work.problem}
              for work in match.works()[0]}  # fmt: skip
    (of_one,), (of_two,) = rounds[ONE], rounds[TWO]
    assert 15 <= of_one <= 45  # as the noise wants, for 0.25 %
    assert of_two == match.finals.plan.rounds  # long calls, which look noisy at the power limit, have no more


@pytest.mark.parametrize("why", ["few configurations", "a budget"])
def test_the_noise_of_screening_does_not_count(why: str, tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=NOISE, overlaps=True))
    if why == "a budget":
        limit(match.session, Budget(10_000.0))
    match.session.store.add_timings(
        screened(ONE, 20.0, 0.001, configs=5 if why == "few configurations" else 20), SCREEN
    )
    match.run()
    first = next(plan for plan in match.gpu.plans if plan.process == 0)
    assert [work.rounds for work in first.work] == [match.finals.plan.rounds] * 2


def test_processes_that_wait_for_the_first_do_not_start_when_the_run_is_to_end(tmp_path: Path) -> None:
    gpu = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, overlaps=True)
    match = Match(tmp_path, gpu)
    gpu.before = lambda plan: match.session.limits.interruption.request()  # in one of the first three
    match.run()
    assert {plan.process for plan in gpu.plans} == {0, 1, 2}


def test_processes_under_a_budget_start_one_after_another(tmp_path: Path) -> None:
    gpu, running = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, overlaps=True), []
    match = Match(tmp_path, gpu)
    gpu.before = lambda plan: running.append(plan.process)
    gpu.after_a_size = lambda plan: None if running[-1] == plan.process else pytest.fail("two processes at once")
    limit(match.session, Budget(10_000.0))
    match.run()
    assert running == [0, 1, 2, 3, 4]


def test_without_time_for_more_a_size_whose_gpu_died_has_the_process_on_the_other_alone(tmp_path: Path) -> None:
    pair = Pair(tmp_path, lost_in=1)
    pair.other.after_a_size = lambda plan: pair.session.limits.interruption.request() if plan.process == 1 else None
    pair.run()
    moved = pair.timed_by(pair.first)[0]
    assert pair.session.store.timed_on(moved, FINALS) == {pair.labels[1]: 5}
    assert {timing.process for timing in pair.finals.timings[moved]} == {1}
    assert pair.session.results.published[moved][A].processes == 1


def test_a_recording_of_one_process_is_played_back_as_one(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 100.0, B: 100.4, C: 120.0}, jitter=NOISE))
    recording: Any = SimpleNamespace(finals_processes=lambda: {0})
    here = match.session.environment
    match.session.gpus.environment = Environment(here.device, here.gpus, here.machine, recording)
    assert match.run().rankings[ONE].order
    assert len(match.works()) == 1
    assert match.session.results.published[ONE][A].processes == 1


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


def test_waiting_for_the_gpu_takes_no_processes_from_the_finals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    match, now = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0})), [0.0]
    budget = limit(match.session, Budget(100.0, 0.0, clock=lambda: now[0]))

    @contextmanager
    def held() -> Iterator[None]:
        wait_s = 0.0 if budget.waited_s else 300.0
        now[0] += wait_s + 2
        budget.waited_s += wait_s
        yield

    monkeypatch.setattr(match.session.gpus, "held", held)
    match.run()
    assert len(match.works()) == 5 and match.finals._runner.longest_s < 300


def test_stored_processes_have_the_same_roles_in_memory_and_in_the_store(tmp_path: Path) -> None:
    """Killed when the first five have been told to choose; then the time is over after them."""

    def killed(plan: Plan) -> None:
        if plan.process == 5:
            raise KeyboardInterrupt

    times, at = {A: 1.0, B: 1.02, C: 1.5}, {1: {A: 1.2}, 3: {A: 1.2}}
    match = Match(tmp_path, Uncertain(times, (0.0, 0.0, 0.0), at))
    match.gpu.before = killed
    with pytest.raises(KeyboardInterrupt):
        match.run()
    match.gpu = Uncertain(times, (0.0, 0.0, 0.0), at)
    match.finals = finals_of(match.session, scripts_of(match.states), [match.gpu])
    match.finals.plan = FinalsPlan(more=0)
    match.finals._run_further = lambda finalists: None  # type: ignore[method-assign]
    finals = match.run()
    roles = {(t.process, t.role) for t in finals.timings[ONE]}
    assert {role for _, role in roles} == {Role.CHOOSE, Role.PUBLISH}
    assert {(t.process, t.role) for t in match.session.store.timings(ONE, FINALS)} == roles


def test_a_size_without_finalists_is_left_out(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu())
    match.finals.run([(match.states[0], []), (match.states[1], [A, B])])
    assert {work.problem for works in match.works() for work in works} == {TWO}
    assert ONE not in match.finals.rankings


def test_the_noise_of_all_sizes_is_kept_as_median_and_most(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002))
    finals = match.run()
    finals.note_noise()
    each = [finals.rankings[size].noise_pct or 0.0 for size in (ONE, TWO)]
    assert match.session.log.notes["noise_pct"] == (round(sum(each) / 2, 3), round(max(each), 3))


class HotAtFirst:
    """A sensor of a GPU that is throttled while the first blocks run; each block reads it from a thread of its own."""

    def __init__(self, hot_blocks: int) -> None:
        self._hot_blocks, self._blocks, self._read = hot_blocks, list[threading.Thread](), threading.Condition()

    def read(self, gpu: int) -> Sample:
        with self._read:
            if threading.current_thread() not in self._blocks:
                self._blocks.append(threading.current_thread())
                self._read.notify_all()
            return Sample(gpu, 1500.0, 650.0, 88.0, len(self._blocks) <= self._hot_blocks)

    def wait_for_block(self, number: int) -> None:
        with self._read:
            assert self._read.wait_for(lambda: len(self._blocks) >= number, 30)

    def close(self) -> None: ...


@pytest.mark.parametrize(("hot", "blocks"), [(0, 5), (1, 6), (9, 10)])
def test_a_throttled_block_is_repeated_once(
    hot: int, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_watch, "PERIOD_S", 0.001)
    sensor = HotAtFirst(hot)

    def wait_for_a_reading(plan: Plan) -> None:
        sensor.wait_for_block(len(match.gpu.plans))

    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, before=wait_for_a_reading))
    match.session.gpus.sensor = sensor
    finals = match.run()
    assert len(match.works()) == blocks
    # Of the last attempt of each process alone.
    assert sorted(t.process for t in finals.timings[ONE] if t.name == A) == [0, 1, 2, 3, 4]
    assert sorted(t.process for t in match.session.store.timings(ONE, FINALS) if t.name == A) == [0, 1, 2, 3, 4]
    titles = ["finals", "finals, again: the GPU was throttled"][: 1 + (hot > 0)]
    assert list(match.session.log.notes["gpu"]) == titles
    assert match.session.log.notes["gpu"]["finals"]["throttled"] == (hot > 0)
