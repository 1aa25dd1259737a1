"""When the processes of finals start: side by side, one after another, and again after throttling."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from finals_match import NOISE, ONE, TWO, A, B, C, Match, Uncertain, screened
from hot_sensor import HotAtFirst
from samples import problem
from tuning import StandInGpu, limit

from gemm_tuner.core.records import Problem, Role, Timing
from gemm_tuner.decide.finals_plan import PROCESSES, FinalsPlan
from gemm_tuner.launch.plan import AHEAD, ANYWHERE, BEHIND, FINALS, SCREEN, Plan
from gemm_tuner.measure import gpu_watch
from gemm_tuner.measure.budget import Budget
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.retry import OnFound, StageRun

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_further_processes_run_beside_each_other(tmp_path: Path) -> None:
    beside = threading.Barrier(2)
    gpu = Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0))
    gpu.overlaps, gpu.before = True, lambda plan: beside.wait(timeout=240) and None if plan.process > 4 else None
    match = Match(tmp_path, gpu)
    finals = match.run()
    assert sorted(plan.process for plan in gpu.plans) == [*range(7)]
    assert {t.role for t in finals.timings[ONE] if t.process > 4} == {Role.CHOOSE}


@pytest.mark.parametrize(("processes", "seconds", "most"), [(5, 0.0, 5 + 2), (1, 0.0, 1), (5, 10_000.0, 1 + 2)])
def test_launchers_wait_for_all_that_may_follow(
    processes: int, seconds: float, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, or after each of those that follow one another, as with a budget."""
    gpu, counts = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, overlaps=True), list[int]()
    monkeypatch.setattr(gpu, "prepare_finals", counts.append)
    match = Match(tmp_path, gpu)
    match.finals.plan = FinalsPlan(processes=processes)
    if seconds:
        limit(match.session, Budget(seconds))
    match.run()
    assert max(counts) == most and counts[-1] == 0


def test_the_rounds_of_a_size_are_looked_up_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them have it, and their launchers wait for it."""
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, overlaps=True))
    store, asked = match.session.store, list[Problem]()
    timings = store.timings

    def noted(problem: Problem, stage: str) -> list[Timing]:
        if stage == SCREEN:
            asked.append(problem)
        return timings(problem, stage)

    monkeypatch.setattr(store, "timings", noted)
    match.run()
    assert sorted(asked, key=str) == sorted([ONE, TWO], key=str)


def test_processes_that_choose_have_their_turns_before_those_that_publish(tmp_path: Path) -> None:
    """So that it is known early which sizes need more of them. These come as they do."""
    gpu = Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0), overlaps=True)
    Match(tmp_path, gpu).run()
    places = {plan.process: plan.place for plan in gpu.plans}
    assert [places[number] for number in range(7)] == [AHEAD] * 3 + [BEHIND] * 2 + [ANYWHERE] * 2


def test_the_last_turn_has_come_where_a_process_has_timed_nothing(tmp_path: Path) -> None:
    """All that it had on a GPU may have crashed, and checks must still begin beside the reports of the others."""

    class Silent(StandInGpu):
        def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
            return super().timings(plan, folder, ignore if plan.process == 4 else on_event, on_found)

    last: list[int] = []
    match = Match(tmp_path, Silent(us={A: 50.0, B: 60.0, C: 70.0}, overlaps=True))
    match.finals.run([(state, list(state.kept)) for state in match.states], lambda: last.append(len(match.gpu.plans)))
    assert last == [5]


def test_the_last_turn_has_come_when_the_last_process_times_on_every_gpu(tmp_path: Path) -> None:
    """What begins then uses the GPUs, which would take time from the process that is late on one."""
    last_ended, begun = threading.Event(), threading.Event()

    class First(StandInGpu):
        def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
            run = super().timings(plan, folder, on_event, on_found)
            if len(self.plans) == PROCESSES:
                last_ended.set()
            return run

    class Late(StandInGpu):
        def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
            if len(self.plans) == PROCESSES - 1:
                assert last_ended.wait(60)
                assert not begun.wait(0.3)
            return super().timings(plan, folder, on_event, on_found)

    us = {A: 50.0, B: 60.0, C: 70.0}
    match = Match(tmp_path, First(us=us, overlaps=True), Late(us=us, overlaps=True))
    match.finals.run([(state, list(state.kept)) for state in match.states], begun.set)
    assert last_ended.is_set() and begun.is_set()


def test_further_processes_begin_while_those_that_publish_run(tmp_path: Path) -> None:
    """What they decide follows from those that choose, so that no GPU waits for the reports of the others."""
    last_of_all = threading.Barrier(4)
    gpu = Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0))
    gpu.overlaps, gpu.before = True, lambda plan: plan.process > 2 and last_of_all.wait(timeout=240) and None
    match = Match(tmp_path, gpu)
    finals = match.run()
    assert sorted(plan.process for plan in gpu.plans) == [*range(7)]
    assert {name for plan in gpu.plans if plan.process > 4 for work in plan.work for _, name in work.entries} == {A, B}
    one_by_one = Match(tmp_path / "one by one", Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0))).run()
    assert finals.rankings[ONE].order == one_by_one.rankings[ONE].order


@pytest.mark.parametrize("overlaps", [False, True])
def test_further_processes_may_be_none(overlaps: bool, tmp_path: Path) -> None:
    gpu = Uncertain({A: 1.0, B: 1.0, C: 1.5}, (0.03, 0.0, 0.0))
    gpu.overlaps = overlaps
    match = Match(tmp_path, gpu)
    match.finals.plan = FinalsPlan(more=0)
    match.run()
    assert len(gpu.plans) == 5


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
        number: Role.PUBLISH if number > 2 else Role.CHOOSE for number in range(5)
    }


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


def test_processes_wait_for_the_first_where_the_noise_of_most_sizes_is_unknown(tmp_path: Path) -> None:
    at_once = threading.Barrier(3)
    gpu = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=NOISE, overlaps=True)
    gpu.before = lambda plan: plan.process < 3 and at_once.wait(timeout=240) and None
    match = Match(tmp_path, gpu, sizes=(ONE, TWO, problem(32, 32, 32)))
    match.session.store.add_timings(screened(TWO, 20.0, 0.01), SCREEN)
    match.run()
    rounds = {plan.process: work.rounds for plan in gpu.plans for work in plan.work if work.problem == ONE}
    assert rounds[0] == rounds[1] == rounds[2] == match.finals.plan.rounds < rounds[3] == rounds[4]


def test_a_size_whose_noise_is_unknown_does_not_keep_processes_from_starting(tmp_path: Path) -> None:
    at_once = threading.Barrier(5)
    gpu = StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002, overlaps=True)
    gpu.before = lambda plan: at_once.wait(timeout=240) and None
    match = Match(tmp_path, gpu)
    match.session.store.add_timings(screened(TWO, 20.0, 0.01), SCREEN)
    match.run()
    assert {one.rounds for works in match.works() for one in works if one.problem == ONE} == {match.finals.plan.rounds}


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
