"""Rounds that compile while they are timed: what compiled is timed, and what is offered for the next."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from round_batches import (
    CONFIGS,
    NAMES,
    ONE,
    TWO,
    Batch,
    CompilesAll,
    CompilesSome,
    Stubborn,
    asked,
    by_step,
    clocked,
    named,
    statuses,
)
from samples import problem
from tuning import StandInGpu, limit, state_of

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure.budget import Budget
from gemm_tuner.pipeline.offers import Offers
from gemm_tuner.pipeline.opens_ahead import OpensAhead
from gemm_tuner.pipeline.round_parts import ready_first, view_of
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.search import Proposals, Requested, SizeView, make_search
from gemm_tuner.search.plain import Full
from gemm_tuner.space.size_state import Named
from gemm_tuner.system.background import Background

pytestmark = pytest.mark.usefixtures("in_a_folder")


def run_with(batch: Batch, compiling: CompilesSome) -> None:
    """Notes in the same list what is screened."""

    def note(plan: Plan) -> None:
        compiling.events.append(("screen", [named(one.problem, name) for one in plan.work for _, name in one.entries]))

    batch.gpus[0].before = note
    batch.run(compiling)


def of_both(*places: int) -> list[str]:
    return [f"{m}/{place}" for m in (512, 64) for place in places]


def test_only_what_compiled_is_timed_and_the_next_round_is_offered_meanwhile(tmp_path: Path) -> None:
    compiling, batch = CompilesSome(), Batch(tmp_path)
    run_with(batch, compiling)
    in_turns = [[f"{m}/{place}" for place in places for m in (512, 64)] for places in ((2, 3), (4, 5))]
    assert by_step(compiling.events) == [
        {"compile": of_both(0, 1), "offer": in_turns[0], "screen": of_both(1)},
        {"compile": of_both(2, 3), "offer": in_turns[1], "screen": of_both(2, 3)},
        {"compile": of_both(4, 5), "offer": [], "screen": of_both(4, 5)},
    ]
    assert statuses(batch.states[0])[NAMES[0]] == "spilled"
    assert NAMES[0] in view_of(batch.states[0]).failed


@pytest.mark.parametrize("first_s", [2.0, 0.0], ids=["cold", "the first part is compiled"])
def test_a_launcher_that_stays_times_a_part_of_a_round_while_the_rest_is_compiled(
    first_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", 6)
    batch = Batch(tmp_path, StandInGpu(stays=True), search=make_search("full", round_size=12))
    compiling = CompilesAll(clocked(batch.session), takes_s=first_s, later_s=2.0)
    run_with(batch, compiling)
    one, two = ([f"{m}/{place}" for place in range(6)] for m in (512, 64))
    assert by_step(compiling.events) == [
        {"compile": one, "meanwhile": two, "offer": two, "screen": one},
        {"compile": two, "offer": [], "screen": two},
    ]
    assert batch.session.log.facts["search rounds"] == 1
    assert all(statuses(state) == dict.fromkeys(NAMES, "ok") for state in batch.states)


@pytest.mark.parametrize(
    ("least", "left_s", "apart"),
    [(8, 2.0, True), (9, 2.0, False), (8, 0.1, False)],
    ids=["worth it", "few are compiled", "the others take no time"],
)
def test_what_is_compiled_already_is_timed_while_the_others_are_compiled(
    least: int, left_s: float, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", least)
    batch = Batch(tmp_path, StandInGpu(stays=True), search=make_search("full", round_size=12))
    ready, others = of_both(0, 2, 4, 5), of_both(1, 3)
    compiling = CompilesAll(clocked(batch.session), takes_s=0.0, later_s=left_s, ready=ready)
    run_with(batch, compiling)
    if apart:
        assert by_step(compiling.events) == [
            {"compile": ready, "meanwhile": of_both_in_turns(1, 3), "offer": of_both_in_turns(1, 3), "screen": ready},
            {"compile": others, "offer": [], "screen": others},
        ]
    else:
        assert [names for what, names in compiling.events if what == "screen"] == [of_both(*range(6))]
    assert all(statuses(state) == dict.fromkeys(NAMES, "ok") for state in batch.states)


@pytest.mark.parametrize(
    ("home", "gpus", "apart"),
    [({}, 1, True), ({}, 2, False), ({ONE: 0, TWO: 0}, 1, True), ({ONE: 0, TWO: 1}, 2, False)],
    ids=["one GPU", "two", "one that is known", "one has none that are ready"],
)
def test_what_is_compiled_is_timed_first_if_all_gpus_have_enough_of_it(
    home: dict[Problem, int], gpus: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", 6)
    both: Named = [(state_of(size, CONFIGS), list(NAMES)) for size in (ONE, TWO)]
    found = ready_first(both, lambda state, name: state.problem == ONE, lambda rest: 1.0, home, gpus)
    assert found == ([both[:1], both[1:]] if apart else [both])


def of_both_in_turns(*places: int) -> list[str]:
    return [f"{m}/{place}" for place in places for m in (512, 64)]


def test_kernels_that_take_long_to_compile_are_compiled_while_others_are_timed(tmp_path: Path) -> None:
    gpu = StandInGpu(us={CONFIGS[0].name: 7.0, CONFIGS[1].name: 9.0}, stays=True)
    batch = Batch(tmp_path, gpu, search=make_search("full", round_size=12))
    of_cute = replace(CONFIGS[0], family="gemm_cute", num_warps=0, num_stages=0)
    cute = [replace(of_cute, BLOCK_SIZE_N=columns) for columns in (64, 96)]
    configs = (cute[0], *CONFIGS[:2], cute[1])
    batch.states = [state_of(size, configs) for size in (ONE, TWO)]
    compiling = CompilesAll(clocked(batch.session), takes_s=2.0)
    batch.run(compiling)
    late, soon = ([one.name for one in some] for some in (cute, CONFIGS[:2]))
    assert asked(batch.plans) == [{512: soon, 64: soon}, {512: late, 64: late}]
    assert [what for what, _ in compiling.events if what != "offer"][:2] == ["compile", "meanwhile"]
    assert [[work.best_us for work in plan.work] for plan in batch.plans] == [[0.0, 0.0], [7.0, 7.0]]
    assert all(statuses(state) == dict.fromkeys((*soon, *late), "ok") for state in batch.states)


@pytest.mark.parametrize(
    ("stays", "takes_s", "budget_s", "least", "of_a_size"),
    [
        (False, 2.0, 0.0, 6, 100),
        (True, 0.5, 0.0, 6, 100),
        (True, 2.0, 1e4, 6, 100),
        (True, 2.0, 0.0, 7, 4),
        (True, 0.3, 0.0, 6, 2),
    ],
    ids=["a plan costs a start", "compiling takes no time", "budget", "too few", "nor does it of shares"],
)
def test_a_round_is_timed_as_a_whole_where_parts_gain_nothing(
    stays: bool,
    takes_s: float,
    budget_s: float,
    least: int,
    of_a_size: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", least)
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_SIZE", of_a_size)
    batch = Batch(tmp_path, StandInGpu(stays=stays), search=make_search("full", round_size=12))
    if budget_s:
        limit(batch.session, Budget(budget_s))
    compiling = CompilesAll(clocked(batch.session), takes_s)
    run_with(batch, compiling)
    assert [names for what, names in compiling.events if what == "screen"] == [of_both(*range(6))]
    assert [[work.problem for work in plan.work] for plan in batch.plans] == [[ONE, TWO]]


@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.parametrize("sizes", [3, 4, 6])
def test_each_part_of_a_round_has_a_size_for_every_gpu(
    gpus: int, sizes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes that are dealt part by part would else all go to the first GPUs, and stay there."""
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", 1)
    there = [StandInGpu(stays=True) for _ in range(gpus)]
    of = [problem(64 * (1 + place), 512, 512) for place in range(sizes)]
    batch = Batch(tmp_path, *there, search=make_search("full", round_size=6 * sizes), sizes=of)
    batch.run(CompilesAll(clocked(batch.session), takes_s=2.0))
    assert [len(gpu.plans) for gpu in there] == [sizes // gpus] * gpus
    counts = [len({work.problem for plan in gpu.plans for work in plan.work}) for gpu in there]
    assert sum(counts) == sizes and max(counts) - min(counts) <= 1


class Waited(Background):
    """What it does goes on only when it is waited for."""

    def __init__(self) -> None:
        super().__init__("test")
        self.is_waited_for = threading.Event()

    def begin(self, work: Callable[[], None]) -> None:
        self.end()
        self.is_waited_for.clear()
        super().begin(work)

    def wait(self) -> None:
        if self._thread is not None:
            self.is_waited_for.set()
        super().wait()


@pytest.mark.parametrize(("of_a_part", "compiled"), [(6, 6), (12, 12)], ids=["before the next part", "before learning"])
def test_nothing_is_recorded_while_it_is_chosen_what_to_offer(
    of_a_part: int, compiled: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what the next part of a round compiled, nor what was timed: the choice goes through both."""
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", of_a_part)
    choice, seen = Waited(), list[tuple[int, int]]()

    class Looks(Full):
        def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
            assert choice.is_waited_for.wait(240)
            rows = [row for state in batch.states for row in state.rows.values()]
            seen.append((sum("registers" in row for row in rows), sum("screen_us" in row for row in rows)))
            return {}

    batch = Batch(tmp_path, StandInGpu(stays=True), search=Looks(12, 12))
    rounds = batch.rounds(CompilesAll(clocked(batch.session), takes_s=2.0))
    rounds._offers = Offers(_background=choice)
    while wanted := rounds.propose():
        rounds.learn(rounds.time(wanted))
    assert seen == [(compiled, 0)]
    assert all(statuses(state) == dict.fromkeys(NAMES, "ok") for state in batch.states)


def test_what_may_come_next_is_chosen_by_the_whole_run_and_offered_for_what_is_left_of_it(tmp_path: Path) -> None:
    """As what comes next is: of the sizes that are left alone, a search would compute all anew."""
    seen: list[list[Problem]] = []

    class OfBoth(Stubborn):
        def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
            return {ONE: NAMES[:2]} if not sizes[0].timed_us else {}

        def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
            seen.append([size.problem for size in sizes])
            return {ONE: NAMES[2:3], TWO: NAMES[3:4]}

    batch = Batch(tmp_path, search=OfBoth())
    everything, compiling = list(batch.states), CompilesAll(clocked(batch.session))
    batch.states.pop()
    rounds = batch.rounds(compiling)
    rounds.of_run = everything
    while wanted := rounds.propose():
        rounds.learn(rounds.time(wanted))
    assert seen == [[ONE, TWO]]
    assert [names for what, names in compiling.events if what == "offer"] == [[named(ONE, NAMES[2])]]


def test_what_was_timed_is_kept_where_the_choice_of_what_to_offer_fails(tmp_path: Path) -> None:
    class Broken(Stubborn):
        def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
            return {ONE: NAMES[:2]}

        def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
            raise ZeroDivisionError

    batch = Batch(tmp_path, search=Broken())
    with pytest.raises(ZeroDivisionError):
        batch.run(CompilesAll(clocked(batch.session)))
    assert statuses(batch.states[0]) == dict.fromkeys(NAMES[:2], "ok")


def test_workers_that_wait_for_a_part_go_on_with_what_an_earlier_one_has_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", 3)
    batch = Batch(tmp_path, StandInGpu(stays=True), search=Full(6, 6))
    compiling = CompilesAll(clocked(batch.session), takes_s=2.0)
    run_with(batch, compiling)
    one, two = ([f"{m}/{place}" for place in range(3)] for m in (512, 64))
    first, second, *_ = by_step(compiling.events)
    assert (first["compile"], first["meanwhile"]) == (one, two)
    assert (second["compile"], second["meanwhile"]) == (two, of_both_in_turns(3, 4, 5))


@pytest.mark.parametrize(("later_s", "plans"), [(2.0, 6), (0.3, 3)], ids=["each part alone", "some together"])
def test_what_a_round_asks_for_is_not_offered_for_the_next(
    later_s: float, plans: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an earlier part of the round was timed, of which the search has not learned yet."""
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", 1)
    batch = Batch(tmp_path, StandInGpu(stays=True))
    compiling = CompilesAll(clocked(batch.session), takes_s=2.0, later_s=later_s)
    run_with(batch, compiling)
    screened: list[str] = []
    for what, names in compiling.events:
        screened += names if what == "screen" else []
        if what == "offer":
            assert not set(names) & set(screened) and len(names) == len(set(names))
    assert len(screened) == 12 and len(batch.plans) == plans


def test_what_to_offer_is_chosen_when_something_is_being_timed(tmp_path: Path) -> None:
    """Not while launchers wait for their plans, which takes the same interpreter."""
    seen: list[str] = []

    class Chooses(Full):
        def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
            seen.append("chosen")
            return {}

    batch = Batch(tmp_path, StandInGpu(before=lambda plan: seen.append("plan")), search=Chooses(12, 12))
    rounds = batch.rounds(CompilesAll())
    rounds.learn(rounds.time(rounds.propose()))
    assert seen == ["plan", "chosen"]


def test_nothing_is_chosen_beside_few_of_many_sizes(tmp_path: Path) -> None:
    """They are timed before it is chosen, and the next proposals would wait for that."""
    seen: list[int] = []

    class Chooses(Full):
        def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
            seen.append(sum(map(len, requested.values())))
            return {}

    batch = Batch(tmp_path, search=Chooses(20, 10), sizes=[problem(64, 64, 64 * k) for k in range(1, 11)])
    batch.run(CompilesAll())
    assert [sum(len(work.entries) for work in plan.work) for plan in batch.plans] == [10, 20, 20, 10]
    assert seen == [20, 20]


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_to_be_chosen_is_chosen_though_nothing_was_timed(fails: bool) -> None:
    """Or the next choice would wait for it for ever."""
    chosen: list[int] = []
    offers = Offers()
    for number in range(2):
        offers.choose = partial(chosen.append, number)
        with contextlib.suppress(EnvironmentFault), offers.chosen_beside():
            if fails:
                raise EnvironmentFault("no GPU is left")
    offers.end()
    assert chosen == [0, 1]


@pytest.mark.parametrize(
    ("takes_s", "order"),
    [(0.0, ["compiling", "screening", "imports"]), (2.0, ["imports", "compiling", "screening"])],
)
def test_what_later_rounds_import_is_imported_while_this_interpreter_waits(
    takes_s: float, order: list[str], tmp_path: Path
) -> None:
    """Beside the first proposals, or before launchers have their plans, it would hold these up as long."""
    happened: list[str] = []

    class Noted(CompilesAll):
        def compile_sizes(self, *of: Any) -> None:
            happened.append("compiling")
            super().compile_sizes(*of)

    gpu = StandInGpu(before=lambda plan: happened.append("screening"))
    batch = Batch(tmp_path, gpu)
    rounds = batch.rounds(Noted(clocked(batch.session), takes_s=takes_s))
    rounds.imports = lambda: happened.append("imports")
    proposed = rounds.propose()
    assert not happened
    rounds.learn(rounds.time(proposed))
    assert list(dict.fromkeys(happened)) == order


@pytest.mark.parametrize("few", [1, 2])
def test_of_few_sizes_the_imports_begin_at_once(few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their first proposals take less."""
    loads = threading.Event()
    monkeypatch.setattr("gemm_tuner.pipeline.tune.load", lambda name: loads.set())
    monkeypatch.setattr("gemm_tuner.pipeline.tune.FEW_SIZES", few)
    batch = Batch(tmp_path)
    tuning = Tuning(batch.session, batch.states, batch.gpus)
    rounds = tuning.rounds(batch.states, tuning.prepare(), None, OpensAhead(batch.fleet, batch.session.gpus, 2))
    assert loads.wait(60) if few == 2 else not loads.is_set()
    rounds.imports()
    assert loads.wait(60)
