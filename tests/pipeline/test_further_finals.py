"""Processes of finals that follow beside those that start together: in a run that goes on, after the death of a GPU,
when a GPU was throttled."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest
from finals_match import CONFIGS, ONE, TWO, A, B, C, Match, Uncertain
from hot_sensor import HotAtFirst
from samples import problem
from tuning import StandInGpu, finals_of, lost, scripts_of, session, state_of

from gemm_tuner.core.records import Status, Timing
from gemm_tuner.decide.finals_plan import FinalsPlan
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.launch.plan import FINALS, Plan, Work
from gemm_tuner.measure import gpu_watch
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline.run_identity import gpu_labels
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.size_state import SizeState

pytestmark = pytest.mark.usefixtures("in_a_folder")


def undecided(factor: float = 1.0) -> Uncertain:
    """A GPU on which more processes decide between A and B."""
    return Uncertain({A: factor, B: factor, C: 1.5 * factor}, (0.03 * factor, 0.0, 0.0), overlaps=True)


def go_on(match: Match, gpu: Uncertain) -> list[int]:
    """Starts the finals of a match again; returns the numbers of the processes that ran."""
    again = finals_of(match.session, scripts_of(match.states), [gpu])
    again.run([(state, list(state.kept)) for state in match.states])
    assert again.rankings[ONE].order
    return sorted(plan.process for plan in gpu.plans)


@pytest.mark.parametrize("left", [(ONE, TWO), (ONE,)], ids=["both", "one"])
def test_further_processes_of_a_size_whose_planned_ones_are_stored(left: tuple[object, ...], tmp_path: Path) -> None:
    match = Match(tmp_path, undecided())
    match.finals.plan = FinalsPlan(more=0)
    match.run()
    for size in (ONE, TWO):
        if size in left:
            match.session.store.drop_process(size, FINALS, 4)
    assert go_on(match, undecided()) == [4, 5, 6]


def test_a_run_that_goes_on_times_nothing_twice(tmp_path: Path) -> None:
    """Also where no size was undecided and one was contradicted."""
    at = {number: {A: 1.0, B: 1.05} for number in range(3)} | {number: {A: 1.1, B: 1.0} for number in range(3, 20)}
    gpus = [Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.0,), at, overlaps=True) for _ in range(2)]
    match = Match(tmp_path, gpus[0])
    match.run()
    assert sorted(plan.process for plan in gpus[0].plans) == [*range(5)]
    assert go_on(match, gpus[1]) == []


def test_the_numbers_of_further_processes_are_theirs_alone(tmp_path: Path) -> None:
    """Whether they ran or not: finals that follow have the same numbers in a run that goes on."""
    decided = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, overlaps=True)
    for gpu, folder in ((decided, "decided"), (undecided(), "undecided")):
        match = Match(tmp_path / folder, gpu)
        match.run()
        again = finals_of(match.session, scripts_of(match.states), [gpu])
        for finals, first in ((again, None), (again, 7), (match.finals, None)):  # None: all were stored
            gpu.plans.clear()
            finals.run([(state, list(state.kept)) for state in match.states])
            assert min((plan.process for plan in gpu.plans), default=None) == first


@dataclass
class Apart(StandInGpu):
    """Whose processes move the first finalist of each size by a pattern of its own, over choosing processes."""

    moves: Mapping[GemmProblem, tuple[float, ...]] = field(default_factory=dict)

    def _time(self, plan: Plan, work: Work) -> dict[Key, Timing]:
        moves = self.moves[as_gemm(work.problem)]
        us = {A: 100.0 * (1 + moves[plan.process % len(moves)]), B: 100.0, C: 150.0}
        return StandInGpu(us)._time(plan, work)


@pytest.mark.parametrize("contradicted", [False, True])
def test_a_size_is_ranked_as_before_where_another_was_finished_meanwhile(contradicted: bool, tmp_path: Path) -> None:
    """The first is decided by what both sizes tell of the noise, and would not be by itself."""
    other = (-0.02, 0.0, -0.01, 0.2, 0.2) if contradicted else (0.01, 0.0, 0.0)
    gpus = [Apart(overlaps=True, moves={ONE: (0.03, 0.0, 0.0), TWO: other}) for _ in range(2)]
    match = Match(tmp_path, gpus[0])
    whole, (one, two) = match.run(), match.states
    assert (whole.rankings[TWO].order[0] == B) == contradicted
    again = finals_of(match.session, scripts_of(match.states), [gpus[1]])
    again.restore(match.states, [two])
    again.run([(one, list(one.kept))])
    assert not gpus[1].plans
    assert (again.timings[ONE], again.rankings[ONE]) == (whole.timings[ONE], whole.rankings[ONE])


def test_a_further_process_that_a_killed_run_left_unfinished_is_had_again(tmp_path: Path) -> None:
    match = Match(tmp_path, undecided())
    match.finals.plan = FinalsPlan(more=0)
    match.run()
    store, (gpu,) = match.session.store, gpu_labels(match.session.environment)
    for size in (ONE, TWO):
        store.drop_process(size, FINALS, 4)
    store.add_timings([Timing(ONE, A, Status.OK, (1.0,) * 30, process=5)], FINALS, lambda _: gpu)
    assert go_on(match, undecided()) == [4, 5, 6]
    assert set(Counter((timing.process, timing.name) for timing in store.timings(ONE, FINALS)).values()) == {1}


def test_no_time_of_a_gpu_that_died_beside_others_stays(tmp_path: Path) -> None:
    """And what is undecided has further processes again, on the GPU that is left."""
    sizes = [problem(512, 512, k) for k in (64, 128)]
    run = session(tmp_path, *sizes, gpus=2)
    states = [state_of(size, CONFIGS) for size in sizes]
    given = [(state, list(state.kept)) for state in states]
    first = finals_of(run, scripts_of(states), [undecided(), undecided(1.6)])
    first.plan = FinalsPlan(more=0)
    first.run(given)
    for size in sizes:
        run.store.drop_process(size, FINALS, 4)
    dies, others = undecided(), threading.Event()

    def before(plan: Plan) -> None:
        if plan.process == 6:
            assert others.wait(240)  # process 5 of the same GPU has stored its times
            lost(plan)

    dies.before = before
    dies.after_a_size = lambda plan: others.set() if plan.process == 5 else None
    again = finals_of(run, scripts_of(states), [dies, undecided(1.6)])
    again.run(given)
    for size in sizes:
        found = [median(timing.samples_us) for timing in again.timings[size] if timing.name == B]
        assert len(found) == 7 and max(found) < 1.05 * min(found)


@dataclass
class Throttled(StandInGpu):
    """On which everything takes a tenth longer while its sensor is hot, in the first attempt of each process."""

    sensor: HotAtFirst = field(default_factory=HotAtFirst)
    attempts: Counter[int] = field(default_factory=Counter)

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        self.attempts[plan.process] += 1
        self.sensor.wait_for_block(self.attempts[plan.process])
        now = undecided(1.1 if self.sensor.is_hot else 1.0)
        return now.timings(plan, folder, on_event, on_found)


def test_further_processes_are_repeated_with_those_that_were_throttled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_watch, "PERIOD_S", 0.001)
    gpu = Throttled(overlaps=True)
    match = Match(tmp_path, gpu)
    match.session.gpus.sensor = gpu.sensor
    finals = match.run()
    assert gpu.attempts == dict.fromkeys(range(7), 2)
    of_b = [timing for timing in finals.timings[ONE] if timing.name == B]
    assert sorted(timing.process for timing in of_b) == [*range(7)]
    found = [median(timing.samples_us) for timing in of_b]
    assert max(found) < 1.02 * min(found)


def test_throttling_takes_nothing_from_sizes_that_were_finished_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_watch, "PERIOD_S", 0.001)
    match = Match(tmp_path, undecided())
    match.run()
    store, (one, two) = match.session.store, match.states
    for number in range(7):
        store.drop_process(ONE, FINALS, number)
    gpu = Throttled(overlaps=True)
    match.session.gpus.sensor = gpu.sensor
    again = finals_of(match.session, scripts_of(match.states), [gpu])
    again.restore(match.states, [two])
    again.run([(one, list(one.kept))])
    assert {timing.process for timing in store.timings(TWO, FINALS)} == set(range(7))


def two_sizes(folder: Path) -> tuple[Session, list[SizeState]]:
    """Two sizes on two GPUs, whose planned processes are stored."""
    sizes = [problem(512, 512, k) for k in (64, 128)]
    run = session(folder, *sizes, gpus=2)
    states = [state_of(size, CONFIGS) for size in sizes]
    first = finals_of(run, scripts_of(states), [undecided(), undecided()])
    first.plan = FinalsPlan(more=0)
    first.run([(state, list(state.kept)) for state in states])
    return run, states


def dying(*processes: int) -> Uncertain:
    gpu = undecided()
    gpu.before = lambda plan: lost(plan) if plan.process in processes else None
    return gpu


def test_a_process_has_a_number_of_its_own_after_a_gpu_died_in_the_further_ones(tmp_path: Path) -> None:
    """What a size has anew on the GPU that is left is not what had begun on the other."""
    run, states = two_sizes(tmp_path)
    left = undecided()
    again = finals_of(run, scripts_of(states), [dying(5, 6), left])
    again.run([(state, list(state.kept)) for state in states])
    for state in states:
        of_b = Counter(timing.process for timing in again.timings[state.problem] if timing.name == B)
        assert max(of_b.values()) == 1


def test_a_size_of_which_only_further_processes_run_may_move(tmp_path: Path) -> None:
    run, states = two_sizes(tmp_path)
    homes = {state.problem: next(iter(run.store.timed_on(state.problem, FINALS))) for state in states}
    _, second = sorted((state.problem for state in states), key=lambda size: homes[size])
    run.store.drop_process(second, FINALS, 4)
    again = finals_of(run, scripts_of(states), [dying(5), undecided()])
    again.run([(state, list(state.kept)) for state in states])
    for state in states:
        assert len({timing.process for timing in again.timings[state.problem]}) >= 5
        assert again.rankings[state.problem].order
