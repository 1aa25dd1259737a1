"""Finals on GPUs that die: each size is timed on one of them."""

from __future__ import annotations

import threading
from pathlib import Path
from statistics import median

import pytest
from finals_match import CONFIGS, A, B, C, Uncertain
from samples import problem
from tuning import StandInGpu, finals_of, lost, scripts_of, session, state_of

from gemm_tuner.core.records import Role, Status, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import FINALS, Plan
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.run_identity import gpu_labels

pytestmark = pytest.mark.usefixtures("in_a_folder")


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
    assert roles == {number: pair.finals.plan.role(number, together=True) for number in range(5)}
    assert pair.session.results.published[moved][A].us == pytest.approx(160.0, rel=0.02)


def test_a_size_whose_next_gpu_dies_too_is_timed_on_the_third_alone(tmp_path: Path) -> None:
    """Of what started together each has begun on the first GPU, which then dies; the second one dies in the third of
    those that are had again."""
    size, begun = problem(512, 512, 64), threading.Barrier(3)
    run, state = session(tmp_path, size, gpus=3), state_of(size, CONFIGS)
    gpus = [Uncertain({A: us, B: us, C: 1.5 * us}, (0.0,), overlaps=True) for us in (1.0, 1.6, 2.5)]

    def first(plan: Plan) -> None:
        if plan.process < 3:
            begun.wait(timeout=240)
        if plan.process == 1:
            lost(plan)

    gpus[0].before, gpus[1].before = first, lambda plan: lost(plan) if plan.process == 2 else None
    finals = finals_of(run, scripts_of([state]), gpus)
    finals.run([(state, list(state.kept))])
    for timings in (finals.timings[size], run.store.timings(size, FINALS)):
        assert len([timing for timing in timings if timing.name == A]) >= 5
        assert {round(median(timing.samples_us)) for timing in timings if timing.name == A} == {250}


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


def test_without_time_for_more_a_size_whose_gpu_died_has_the_process_on_the_other_alone(tmp_path: Path) -> None:
    pair = Pair(tmp_path, lost_in=1)
    pair.other.after_a_size = lambda plan: pair.session.limits.interruption.request() if plan.process == 1 else None
    pair.run()
    moved = pair.timed_by(pair.first)[0]
    assert pair.session.store.timed_on(moved, FINALS) == {pair.labels[1]: 5}
    assert {timing.process for timing in pair.finals.timings[moved]} == {1}
    assert pair.session.results.published[moved][A].processes == 1
