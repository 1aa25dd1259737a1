"""From a round or finals to the plans that launchers read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rule_cases import thin_space
from samples import config, device, problem
from tuning import SM_90, open_ledger, scripts_of, session, state_of

from gemm_tuner.core.records import Status
from gemm_tuner.launch.plan import FINALS, SCREEN, Plan, Work
from gemm_tuner.measure import fleet
from gemm_tuner.pipeline.plans import FLUSH_L2_TIMES, Planner
from gemm_tuner.pipeline.round_parts import view_of
from gemm_tuner.search import FULL_ROUND, make_search

ONE, TWO = problem(512, 512, 512), replace(problem(64, 64, 64), dtype_a="fp16", dtype_b="fp16", dtype_c="fp16")
TILE, LOOP = config(), config(family="gemm_persistent", PROGRAMS_PER_SM=1)  # type: ignore[arg-type]


@pytest.fixture
def planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planner:
    monkeypatch.chdir(tmp_path)
    run = session(tmp_path, ONE, TWO, warmup=10, iters=40, screen_calls=6, init_type="zeros", seed=7, rotating_mib=512)
    return run.planner(scripts_of([state_of(ONE, (TILE, LOOP)), state_of(TWO, (TILE,))]))


def test_every_entry_names_the_script_of_its_family_and_class(planner: Planner) -> None:
    one = planner.work(state_of(ONE, (TILE, LOOP)), [LOOP.name, TILE.name])
    two = planner.work(state_of(TWO, (TILE,)), [TILE.name])
    ((plan, _),) = planner.finals()([one, two])
    names = [
        [Path(plan.scripts[script]).stem.removesuffix("_" + "0" * 12) for script, _ in work.entries]
        for work in plan.work
    ]
    assert names == [["gemm_persistent_bf16_nn", "gemm_tile_bf16_nn"], ["gemm_tile_fp16_nn"]]
    assert [name for _, name in plan.work[0].entries] == [LOOP.name, TILE.name]


def test_the_method_is_what_was_asked_for(planner: Planner) -> None:
    work = [planner.work(state_of(ONE, (TILE,)), [TILE.name])]
    ((finals, _),), ((screen, _),) = planner.finals()(work), planner.screen(1, float("inf"))(work)
    assert (finals.stage, finals.method.timed_calls) == (FINALS, 40)
    assert (screen.stage, screen.method.timed_calls) == (SCREEN, 6)
    for plan in (finals, screen):
        assert (plan.method.init_type, plan.method.seed, plan.method.warmup_calls) == ("zeros", 7, 10)
        assert plan.method.flush_bytes == FLUSH_L2_TIMES * SM_90.l2_bytes
        assert plan.method.rotating_bytes == 512 * 2**20


def test_plans_have_the_deadline_that_they_are_given(planner: Planner) -> None:
    work = [planner.work(state_of(ONE, (TILE,)), [TILE.name])]
    for plans, deadline in (
        (planner.screen(1, 1234.5), 1234.5),
        (planner.finals(0, 99.5), 99.5),
        (planner.finals(), 0.0),
    ):
        assert [plan.deadline for plan, _ in plans(work)] == [deadline]


def parts(plans: list[tuple[Plan, Path]]) -> list[list[int]]:
    return [[work.problem.m for work in plan.work] for plan, _ in plans]


def test_screening_is_dealt_over_as_many_starts_as_asked_for_or_needed(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = [Work(problem(m, 16, 16), ((0, "a"), (0, "b"))) for m in (1, 2, 3)]
    assert parts(planner.screen(1, float("inf"))(works)) == [[1, 2, 3]]
    assert parts(planner.screen(2, float("inf"))(works)) == [[1, 3], [2]]
    monkeypatch.setattr(fleet, "MOST_ENTRIES_A_START", 2)
    plans = planner.screen(1, float("inf"))(works)
    assert parts(plans) == [[1], [2], [3]]
    folders = [folder for _, folder in plans]
    assert len(set(folders)) == 3 and all(folder.is_dir() for folder in folders)  # no two starts share a file
    assert parts(planner.finals()(works)) == [[1, 2, 3]]


def test_finals_of_many_calls_are_dealt_over_several_starts(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 rounds of one finalist, the vendor library and a duplicate are 120 calls a size."""
    works = [replace(planner.work(state_of(size, (TILE,)), [TILE.name]), vendor=True, again=TILE.name)
             for size in (ONE, TWO)]  # fmt: skip
    for most, expected in ((240, [[512, 64]]), (239, [[512], [64]])):
        monkeypatch.setattr(fleet, "MOST_CALLS_A_START", most)
        assert parts(planner.finals()(works)) == expected
    monkeypatch.setattr(fleet, "MOST_CALLS_A_START", 240)
    assert parts(planner.finals()([replace(one, rounds=80) for one in works])) == [[512], [64]]


def test_full_plans_each_of_more_than_15000_configurations_of_a_size_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ROCm's tune_gemm.py takes of a size, cut and planned, and nothing compiled."""
    monkeypatch.chdir(tmp_path)
    gpu, size = device("gfx942"), problem(4096, 4096, 4096)
    state = open_ledger(thin_space("gfx942", heuristics=False), size, gpu)
    assert len(state.kept) > 15_000
    planner, search = session(tmp_path, size).planner(scripts_of([state])), make_search("full")
    planned: list[str] = []
    while proposed := search.propose([view_of(state)], gpu):
        assert len(proposed[size]) <= FULL_ROUND
        for plan, folder in planner.screen(1, 0.0)([planner.work(state, proposed[size])]):
            plan.write(folder / "plan.json")
            planned += [name for work in Plan.read(folder / "plan.json").work for _, name in work.entries]
        for name in proposed[size]:
            state.record(name, Status.LAUNCH_ERROR, "was not launched")
    assert len(planned) == len(set(planned)) and set(planned) == set(state.kept)
