"""The measured way from states to a results file on a stand-in GPU: a budget, a failed check, several GPUs."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from samples import config
from tuned_runs import OLD, ONE, TIMES, TWO, A, B, C, D, Run, chosen, statuses
from tuning import StandInGpu, limit, lost, state_of
from waits import wait_until

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.launch.plan import AA_TEST, FINALS, SCREEN, VENDOR, VERIFY, Plan
from gemm_tuner.measure.budget import Budget
from gemm_tuner.pipeline import run_end
from gemm_tuner.pipeline.finalists import MORE_FINALS
from gemm_tuner.store import results, run_record

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_every_size_gets_its_fastest_right_configuration(tmp_path: Path) -> None:
    done = Run(tmp_path, StandInGpu(us=TIMES, drift=0.03, wrong=frozenset((B,)))).run()
    assert chosen(done) == {512: A, 64: A}
    choice = done.results.choices[ONE]
    assert (choice.verified, choice.runner_up, choice.num_samples) == (Verified.TRUE, C, 20)
    assert choice.vendor_ratio == pytest.approx(90 / 50, rel=0.01) and choice.gap_pct == pytest.approx(20.0, rel=0.01)
    assert [row.facts["name"] for row in results.read(done.results.path).rows] == [A, A]


def test_the_record_says_what_was_measured(tmp_path: Path) -> None:
    run = Run(tmp_path)
    done = run.run()
    run_record.write(done.folder.root, run_end.record_of(done, run.states))
    record = run_record.read(done.folder.root)
    one = record.sizes[0]
    assert (one.chosen, one.total, one.counts) == (B, 4, {"pruned": 0, "ok": 4})
    assert {final.name: len(final.samples_us) for final in one.finals if final.name in (B, VENDOR)} == {
        B: 20,
        VENDOR: 20,
    }
    assert record.notes["noise_pct"] == [0.0, 0.0]
    assert set(record.stages) >= {"search", "screen", "finals", "check"}


def test_quick_leaves_the_others_out_and_says_so(tmp_path: Path) -> None:
    configs = tuple(config(num_stages=1 + index % 8, num_warps=4 << index // 8) for index in range(20))
    run = Run(tmp_path, configs=configs, search="quick")
    run.run()
    counts = run.states[0].counts()
    assert counts["ok"] == 16 and counts["pruned"] == 4
    assert run.states[0].rows[configs[-1].name]["rule"] == "not_asked_for_by_the_search"


def test_a_size_with_nothing_timed_fails_with_the_reason(tmp_path: Path) -> None:
    run = Run(tmp_path, StandInGpu(statuses=dict.fromkeys((A, B, C, D), Status.CRASHED)))
    done = run.run()
    said = "no configuration has a time: 4 crashed; 4 of 4 say: it failed"
    assert done.results.failures[ONE] == said and done.results.choices == {}
    assert done.store.finished(ONE) == ("", done.results.failures[ONE])


def test_a_size_with_nothing_right_fails_with_the_reason(tmp_path: Path) -> None:
    done = Run(tmp_path, StandInGpu(us=TIMES, wrong=frozenset((A, B, C, D)))).run()
    assert done.results.failures[ONE].startswith("none of the finalists is right: 4 gave wrong results")


def finalists_of(gpu: StandInGpu) -> list[list[str]]:
    """Of ONE, by finals, whose processes follow each other."""
    works = [work for plan in gpu.plans if plan.stage == FINALS for work in plan.work if work.problem == ONE]
    return [names for names, _ in itertools.groupby([name for _, name in work.entries] for work in works)]


@pytest.mark.parametrize("ends", ["wrong", "crashed"])
def test_the_next_best_have_finals_when_no_finalist_is_right(ends: str, tmp_path: Path) -> None:
    ended: dict[str, Status | None] = {}

    def crash_in_finals(plan: Plan) -> None:
        ended.update(dict.fromkeys((A, B), Status.CRASHED) if ends == "crashed" and plan.stage == FINALS else {})

    wrong = frozenset((A, B)) if ends == "wrong" else frozenset[str]()
    run = Run(tmp_path, StandInGpu(us=TIMES, statuses=ended, wrong=wrong, before=crash_in_finals), finalists=1)
    done = run.run()
    assert chosen(done) == {512: C, 64: C} and done.results.failures == {}
    assert finalists_of(run.gpus[0]) == [[B], [A], [C]]
    assert statuses(run.states[0]) == {A: ends, B: ends, C: "ok", D: "ok"}
    assert {timing.name for timing in done.store.timings(ONE, FINALS)} == {C, VENDOR, AA_TEST}
    assert done.results.choices[ONE].num_samples == 20  # those of its own finals
    again = run.again(StandInGpu())
    assert again.run().results.choices == done.results.choices and statuses(again.states[0]) == statuses(run.states[0])


def test_what_a_fast_wrong_one_stopped_early_has_finals_when_that_is_known(tmp_path: Path) -> None:
    stopped: dict[str, Status | None] = dict.fromkeys((A, C, D), Status.EARLY_STOPPED)

    def run_to_the_end(plan: Plan) -> None:
        if plan.stage == FINALS:
            stopped.clear()

    gpu = StandInGpu(us={**TIMES, B: 1.0}, statuses=stopped, wrong=frozenset((B,)), before=run_to_the_end)
    assert chosen(Run(tmp_path, gpu).run()) == {512: A, 64: A}
    assert finalists_of(gpu) == [[B], [A, C, D]]


@pytest.mark.parametrize(("times_as_long", "finalists"), [(1.0, [B]), (3.0, [B, A])])
def test_more_of_a_large_size_come_into_the_finals(times_as_long: float, finalists: list[str], tmp_path: Path) -> None:
    gpu = StandInGpu(us={name: us * times_as_long for name, us in TIMES.items()})
    Run(tmp_path, gpu, finalists=1).run()
    assert finalists_of(gpu)[0] == finalists


def test_a_size_has_so_many_finals_and_no_more(tmp_path: Path) -> None:
    configs = tuple(config(num_stages=stages) for stages in range(1, 9))
    gpu = StandInGpu(wrong=frozenset(one.name for one in configs))
    done = Run(tmp_path, gpu, configs=configs, finalists=1).run()
    assert len(finalists_of(gpu)) == 1 + MORE_FINALS
    assert done.results.failures[ONE].startswith(
        "none of the finalists, those of 3 further finals among them, is right: 4 gave wrong results"
    )


def test_without_compare_the_check_stops_at_the_first_right_one(tmp_path: Path) -> None:
    for compare, checked in (("", [B]), ("finalists", [B, A, C, D])):
        run = Run(tmp_path / (compare or "none"), compare=compare)
        run.run()
        (plan,) = (plan for plan in run.gpus[0].plans if plan.stage == VERIFY)
        assert [name for _, name in plan.work[0].entries] == [B, A, C, D]
        assert (A in run.session.store.checked(ONE)) == (A in checked)


def test_two_gpus_share_the_sizes_and_one_may_fail(tmp_path: Path) -> None:
    def fail_in_the_finals(plan: Plan) -> None:
        if plan.stage == FINALS:
            lost(plan)

    run = Run(tmp_path, StandInGpu(us=TIMES, before=fail_in_the_finals), StandInGpu(us=TIMES))
    assert chosen(run.run()) == {512: B, 64: B}
    stages = [[(plan.stage, len(plan.work)) for plan in gpu.plans] for gpu in run.gpus]
    assert stages[0] == [(SCREEN, 1), (FINALS, 1)]
    finals = [(FINALS, 1), (FINALS, 1), *[(FINALS, 2)] * 4]  # the other GPU's size had its first process here too
    assert sorted(stages[1]) == sorted([(SCREEN, 1), *finals, (VERIFY, 2)])


def test_a_size_that_a_budget_left_out_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in says nothing of TWO, as a launcher does whose deadline is over."""
    clock = SimpleNamespace(now_s=0.0)

    def pass_time(plan: Plan) -> None:
        clock.now_s = 80.0

    run = Run(tmp_path, StandInGpu(us=TIMES, statuses={OLD.name: None}, before=pass_time), budget_s=100.0)
    limit(run.session, Budget(100.0, 0.0, lambda: clock.now_s))
    run.states[1] = state_of(TWO, (OLD,))
    done = run.run()
    assert chosen(done) == {512: B}
    assert done.results.failures[TWO] == "nothing was tried; a larger --budget tries more"
    assert run.states[1].rows[OLD.name]["rule"] == "not_asked_for_by_the_search"


def test_nothing_tried_at_all_is_said(tmp_path: Path) -> None:
    run = Run(tmp_path, budget_s=10.0)
    run.session.limits.budget.began -= 100
    run.states = [state_of(size, ()) for size in (ONE, TWO)]
    with pytest.raises(EnvironmentFault, match="nothing was tried; a larger --budget"):
        run.run()


def test_what_a_check_needs_is_compiled_while_finals_run(tmp_path: Path) -> None:
    """Real workers: the first finals last until kernels are compiled that no timing needs."""
    small = config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16, num_warps=1, num_stages=1)
    screened: list[int] = []

    def look(plan: Plan) -> None:
        store = run.session.store
        if plan.stage == SCREEN:
            screened.append(store.num_compiles())
        elif plan.stage == FINALS:
            wait_until(lambda: store.num_compiles() > screened[0])

    gpu = StandInGpu(before=look)
    run = Run(tmp_path, gpu, configs=(small,), compile_stage=True, compile_workers=1)
    assert set(chosen(run.run())) == {512, 64}


def test_the_row_names_what_was_faster_and_found_wrong(tmp_path: Path) -> None:
    """Also of earlier finals, in a finished size of a run that goes on, and not what is slower."""
    for at, finalists in (("a", 8), ("b", 1)):
        first = Run(tmp_path / at, StandInGpu(us=TIMES, wrong=frozenset((B, A, D))), finalists=finalists, compare="all")
        before = first.run()
        after = first.again(StandInGpu()).run()
        assert chosen(before) == {512: C, 64: C}
        for choice in (before.results.choices[ONE], after.results.choices[ONE]):
            assert {name: why.partition(":")[0] for name, why in choice.overruled} == {A: "wrong", B: "wrong"}
        (row, _) = results.read(before.results.path).rows
        assert A in row.facts["overruled"] and B in row.facts["overruled"] and D not in row.facts["overruled"]
    assert Run(tmp_path / "c").run().results.choices[ONE].overruled == ()
