"""Tuning that goes on or starts from an older choice: --update, a killed run, a finished one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import config
from tuned_runs import OLD, ONE, TIMES, TWO, A, B, C, D, Run, chosen, statuses
from tuning import StandInGpu

from gemm_tuner.core.records import Status, Timing
from gemm_tuner.launch.plan import FINALS, SCREEN, Plan
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.pipeline import run_summary
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.system.processes import MOST_CRASHES

pytestmark = pytest.mark.usefixtures("in_a_folder")


def update(folder: Path, old_us: float, *gpu: StandInGpu, least_pct: float = 2.0, **how: Any) -> Run:
    """The older choice of ONE is a configuration that is not in the space."""
    times = {**TIMES, OLD.name: old_us}
    gpus = gpu or (StandInGpu(us=times, drift=0.03, jitter=0.001),)
    return Run(folder, *gpus, older={ONE: OLD}, min_improvement_pct=least_pct, **how)


@pytest.mark.parametrize(
    ("old_us", "least_pct", "keeps"),
    [(40.4, 2.0, True), (42.0, 2.0, False), (42.0, 10.0, True), (39.0, 2.0, True), (100.0, 2.0, False)],
)
def test_an_older_choice_is_replaced_by_a_clearly_faster_one_only(
    old_us: float, least_pct: float, keeps: bool, tmp_path: Path
) -> None:
    run = update(tmp_path, old_us, least_pct=least_pct)
    done = run.run()
    assert chosen(done) == {512: OLD.name if keeps else B, 64: B}
    assert done.log.notes["updated"] == {"kept": int(keeps), "replaced": int(not keeps)}
    assert run.states[0].rows[OLD.name]["finals_samples"] >= 20  # whatever it did in the screening


def test_an_older_choice_is_in_the_finals_even_if_the_search_never_asked_for_it(tmp_path: Path) -> None:
    configs = tuple(config(num_stages=1 + index % 8, num_warps=4 << index // 8) for index in range(20))
    times = {one.name: 60.0 for one in configs}
    old = config(num_stages=8, num_warps=16)
    gpu = StandInGpu(us={**times, old.name: 50.0})
    run = Run(tmp_path, gpu, configs=configs, search="quick", older={ONE: old})
    assert chosen(run.run())[512] == old.name


def test_an_older_choice_that_is_wrong_gives_way(tmp_path: Path) -> None:
    gpu = StandInGpu(us={**TIMES, OLD.name: 10.0}, wrong=frozenset((OLD.name,)))
    done = update(tmp_path, 10.0, gpu).run()
    assert chosen(done)[512] == B and done.log.notes["updated"] == {"kept": 0, "replaced": 1}
    assert any("0 replaced by clearly faster ones, 1 " in line for line in run_summary.notes(done.log.notes))


def test_an_older_choice_that_the_traces_lack_was_not_beaten(tmp_path: Path) -> None:
    def hide(plan: Plan) -> None:
        gpu.statuses = {OLD.name: Status.MISSING_IN_TRACE} if plan.process in (1, 3) else {}

    gpu = StandInGpu(us={**TIMES, OLD.name: 50.0}, before=hide)
    run = update(tmp_path, 50.0, gpu)
    done = run.run()
    assert (
        ONE not in done.results.choices and "not beaten" in done.results.failures[ONE] and TWO in done.results.choices
    )
    again = run.again(StandInGpu()).run()
    assert again.results.failures == done.results.failures


def test_an_older_choice_that_crashed_is_not_run_again(tmp_path: Path) -> None:
    gpu = StandInGpu(us=TIMES, statuses={OLD.name: Status.CRASHED})
    run = update(tmp_path, 10.0, gpu)
    done = run.run()
    assert chosen(done)[512] == B
    assert done.log.notes["older_not_run"] == {ONE.key: "crashed: it failed"}
    finals = next(plan for plan in gpu.plans if plan.stage == FINALS)
    assert OLD.name not in [name for _, name in finals.work[0].entries]


def test_an_older_choice_that_does_not_compile_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real workers: 64 x 64 x 64 with 15 stages needs more shared memory than the GPU has."""
    small = tuple(config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16, num_warps=1, num_stages=s) for s in (1, 2))
    too_large = config(BLOCK_SIZE_M=64, BLOCK_SIZE_N=64, BLOCK_SIZE_K=64, num_stages=15)
    gpu = StandInGpu()
    run = Run(tmp_path, gpu, configs=small, search="quick", compile_stage=True, older={ONE: too_large})
    # The search does not ask for it: it is predicted to be slow.
    monkeypatch.setattr("gemm_tuner.search.QUICK_COUNT", 2)
    monkeypatch.setattr(CompileStage, "prefetch", lambda self, wanted: None)
    done = run.run()
    assert run.states[0].rows[too_large.name]["status"] == "out_of_resources"
    launched = {name for plan in gpu.plans for work in plan.work for _, name in work.entries}
    assert launched == {one.name for one in small}
    assert set(chosen(done)) == {512, 64}


def die_at(stage: str) -> StandInGpu:
    """A GPU at whose stage the tuner is killed."""

    def before(plan: Plan) -> None:
        if plan.stage == stage:
            raise KeyboardInterrupt

    return StandInGpu(us=TIMES, before=before)


@pytest.mark.parametrize(("stage", "screens"), [(SCREEN, 1), (FINALS, 0)])
def test_a_killed_run_times_nothing_twice_and_chooses_as_it_would_have(
    stage: str, screens: int, tmp_path: Path
) -> None:
    first = Run(tmp_path, die_at(stage))
    with pytest.raises(KeyboardInterrupt):
        first.run()
    second = first.again(StandInGpu(us=TIMES))
    assert chosen(second.run()) == {512: B, 64: B}
    assert [plan.stage for plan in second.gpus[0].plans].count(SCREEN) == screens
    assert all(statuses(state) == dict.fromkeys((A, B, C, D), "ok") for state in second.states)


def test_screenings_are_stored_with_their_gpu_and_a_size_goes_on_there(tmp_path: Path) -> None:
    def dies(plan: Plan) -> None:
        if plan.stage == FINALS:
            raise OSError("killed")

    first = Run(tmp_path, *(StandInGpu(us=TIMES, before=dies) for _ in range(2)))
    with pytest.raises(OSError, match="killed"):
        first.run()
    labels = first.session.gpus.labels
    on = {size: next(iter(first.session.store.timed_on(size, SCREEN))) for size in (ONE, TWO)}
    assert set(on.values()) == set(labels) and len(labels) == 2
    gpus = [StandInGpu(us=TIMES) for _ in labels]
    first.again(*gpus).run()
    for gpu, label in zip(gpus, labels, strict=True):
        timed = {work.problem for plan in gpu.plans if plan.stage == FINALS for work in plan.work}
        assert timed == {size for size in on if on[size] == label}


def test_a_finished_size_is_not_timed_again(tmp_path: Path) -> None:
    first = Run(tmp_path, StandInGpu(us=TIMES, wrong=frozenset((B,))))
    before = first.run()
    second = first.again(StandInGpu(us=dict.fromkeys((A, B, C, D), 1.0)))
    after = second.run()
    assert second.gpus[0].plans == []
    assert after.results.choices == before.results.choices and chosen(after) == {512: A, 64: A}
    assert statuses(second.states[0])[B] == "wrong"


def test_a_size_whose_older_choice_was_kept_is_finished_again(tmp_path: Path) -> None:
    """The space does not have it."""
    gpu = StandInGpu(us={**TIMES, OLD.name: 30.0})
    first = update(tmp_path, 30.0, gpu)
    before = first.run()
    second = first.again(gpu)
    after = second.run()
    assert after.results.choices == before.results.choices and chosen(after) == {512: OLD.name, 64: B}
    assert [state.counts() for state in second.states] == [state.counts() for state in first.states]


def test_a_size_that_an_interrupted_check_did_not_come_to_is_not_finished(tmp_path: Path) -> None:
    class AskedToEnd(StandInGpu):
        def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
            super().verdicts(replace(plan, work=plan.work[:1]), folder, on_event)
            first.session.limits.interruption.request()

    first = Run(tmp_path, AskedToEnd(us=TIMES))
    with pytest.raises(KeyboardInterrupt):
        first.run()
    assert first.session.store.finished(ONE) is not None and first.session.store.finished(TWO) is None
    assert chosen(first.again(StandInGpu(us=TIMES)).run()) == {512: B, 64: B}


def test_one_that_ran_at_several_deaths_is_given_up(tmp_path: Path) -> None:
    first = Run(tmp_path)
    for _ in range(MOST_CRASHES):
        first.session.store.add_begun([(ONE.key, B)])
    first.session.store.add_timings([Timing(TWO, B, Status.OK, (40.0,) * 5)], SCREEN)
    first.session.store.add_begun([(TWO.key, B), (TWO.key, A)])
    done = first.run()
    assert chosen(done) == {512: A, 64: B}
    row = first.states[0].rows[B]
    assert row["status"] == "crashed" and "2 times" in row["message"]
