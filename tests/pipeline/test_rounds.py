"""Rounds of a search against a stand-in GPU: what is timed, once each, what is learned, and when it ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from samples import config, problem
from tuning import StandInGpu, limit, lost, scripts_of, session, state_of

from gemm_tuner.core.records import CompileResult, Config, Device, Problem, Status, Timing
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import SCREEN, Plan
from gemm_tuner.measure.budget import Budget, Cost, Pace
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.pipeline.rounds import Rounds, view_of
from gemm_tuner.pipeline.session import Session
from gemm_tuner.search import Proposals, Search, SizeView, make_search
from gemm_tuner.space.size_state import Named, SizeState

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
CONFIGS = tuple(config(num_stages=stages) for stages in range(2, 8))
NAMES = [one.name for one in CONFIGS]
Pairs = list[tuple[Problem, Config]]


class Batch:
    """Two sizes, or ``sizes``, of six configurations each, predicted best first."""

    def __init__(
        self,
        folder: Path,
        *gpus: StandInGpu,
        search: Search | None = None,
        sizes: Sequence[GemmProblem] = (ONE, TWO),
        **options: Any,
    ) -> None:
        self.gpus = gpus or (StandInGpu(),)
        self.session = session(folder, *sizes, gpus=len(self.gpus), **options)
        self.states = [state_of(size, CONFIGS) for size in sizes]
        self.search = search or make_search("full", round_size=4)
        self.fleet = Fleet(self.gpus, print)

    def rounds(self, compiling: Any = None) -> Rounds:
        of, planner = self.session, self.session.planner(scripts_of(self.states))
        shared = of.gpus, of.store, of.limits, of.log
        return Rounds(self.search, self.states, planner, self.fleet, *shared, compiling, of.options.jobs)

    def run(self, compiling: Any = None) -> None:
        """As a tuning runs them."""
        rounds = self.rounds(compiling)
        while asked := rounds.propose():
            rounds.learn(rounds.time(asked))

    @property
    def plans(self) -> list[Plan]:
        return [plan for gpu in self.gpus for plan in gpu.plans]


class Clock:
    """Takes the place of time's clock in the module under test."""

    def __init__(self, start_s: float) -> None:
        self.now_s = start_s

    def monotonic(self) -> float:
        return self.now_s


class CompilesSome:
    """Stands for the compile pool: books what it is asked for, the first as a spiller, and notes what it is offered.

    takes_s: of each time that it is waited for.
    """

    spiller = NAMES[0]

    def __init__(self, clock: Clock | None = None, takes_s: float = 0.0) -> None:
        self.events: list[tuple[str, list[str]]] = []
        self.clock, self.takes_s = clock, takes_s

    def compile_sizes(self, wanted: Named, title: str, until: float, then: Pairs) -> None:
        self.events.append((title, [named(state.problem, name) for state, names in wanted for name in names]))
        if then:
            self.events.append(("meanwhile", [named(problem, config.name) for problem, config in then]))
        if self.clock is not None:
            self.clock.now_s += self.takes_s
        for state, names in wanted:
            for name in names:
                status = Status.SPILLED if name == self.spiller else Status.OK
                state.record_compile(name, CompileResult(name, "d", status, message="spills 9"))

    def prefetch(self, wanted: Pairs) -> None:
        self.events.append(("offer", [named(problem, config.name) for problem, config in wanted]))


def named(problem: Problem, name: str) -> str:
    """A configuration of a size, in short: such as 512/0 for the first of CONFIGS."""
    return f"{problem.m}/{NAMES.index(name)}"


class CompilesAll(CompilesSome):
    spiller = ""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(plans: Sequence[Plan]) -> list[dict[int, list[str]]]:
    return [{work.problem.m: [name for _, name in work.entries] for work in plan.work} for plan in plans]


def statuses(state: SizeState) -> dict[str, str]:
    return {name: row["status"] for name, row in state.rows.items() if "status" in row}


def test_the_full_search_times_everything_once_predicted_best_first(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.run()
    assert asked(batch.plans) == [{512: part, 64: part} for part in (NAMES[:2], NAMES[2:4], NAMES[4:])]
    assert all(statuses(state) == dict.fromkeys(NAMES, "ok") for state in batch.states)
    assert batch.session.log.facts["search rounds"] == batch.session.log.facts["profiler starts"] == 3


@pytest.mark.parametrize(("overlaps", "budget_s", "waiting"), [(True, 0.0, 5), (False, 0.0, 0), (True, 1e4, 0)])
def test_the_first_processes_of_finals_start_while_a_round_is_timed(
    overlaps: bool, budget_s: float, waiting: int, tmp_path: Path
) -> None:
    class Preparing(StandInGpu):
        waiting = 0

        def prepare_finals(self, count: int) -> None:
            self.waiting = count

    gpu = Preparing(overlaps=overlaps)
    seen: list[int] = []
    gpu.before = lambda plan: seen.append(gpu.waiting)
    batch = Batch(tmp_path, gpu)
    if budget_s:
        limit(batch.session, Budget(budget_s))
    batch.run()
    assert seen == [waiting] * 3


def test_what_was_timed_is_in_the_store_and_the_account(tmp_path: Path) -> None:
    batch = Batch(tmp_path, StandInGpu(us={NAMES[3]: 7.0}))
    batch.run()
    state = batch.states[0]
    stored = {timing.name: timing for timing in batch.session.store.timings(ONE, SCREEN)}
    assert stored.keys() == set(NAMES) and stored[NAMES[3]].samples_us == (7.0,) * 5
    assert state.best_screened_us() == 7.0 and state.fastest(1) == [NAMES[3]]


def test_a_round_knows_the_best_of_those_before_it(tmp_path: Path) -> None:
    batch = Batch(tmp_path, StandInGpu(us={NAMES[0]: 50.0, NAMES[2]: 30.0, NAMES[4]: 90.0}))
    batch.run()
    assert [plan.work[0].best_us for plan in batch.plans] == [0.0, 50.0, 30.0]


def test_one_that_was_stopped_early_or_failed_is_no_best(tmp_path: Path) -> None:
    statuses = {NAMES[0]: Status.EARLY_STOPPED}
    batch = Batch(tmp_path, StandInGpu(us={NAMES[0]: 5.0, NAMES[1]: 30.0, NAMES[2]: 20.0}, statuses=statuses))
    batch.states[0].record_timing(Timing(ONE, NAMES[5], Status.OK, (1.0,)), SCREEN)
    batch.states[0].record(NAMES[5], Status.WRONG)
    batch.run()
    assert [plan.work[0].best_us for plan in batch.plans] == [0.0, 30.0, 20.0]


def test_a_start_times_the_predicted_best_first(tmp_path: Path) -> None:
    """So that losers are known as such early; a search may ask in another order."""

    class LastFirst(Stubborn):
        def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
            return {ONE: NAMES[::-1]} if not sizes[0].timed_us else {}

    batch = Batch(tmp_path, search=LastFirst())
    batch.run()
    assert asked(batch.plans) == [{512: NAMES}]


def test_failures_are_learned_and_not_asked_again(tmp_path: Path) -> None:
    batch = Batch(tmp_path, StandInGpu(statuses={NAMES[0]: Status.CRASHED, NAMES[5]: Status.EARLY_STOPPED}))
    batch.run()
    view = view_of(batch.states[0])
    assert view.failed == {NAMES[0]} and set(view.timed_us) == set(NAMES[1:])
    assert batch.states[0].fastest(9) == NAMES[1:5]
    assert batch.states[0].rows[NAMES[0]]["message"] == "it failed"


def test_what_the_launcher_says_nothing_of_is_missing(tmp_path: Path) -> None:
    batch = Batch(tmp_path, StandInGpu(statuses={NAMES[1]: None}))
    batch.run()
    assert statuses(batch.states[0])[NAMES[1]] == "missing_in_trace"
    assert len(batch.plans) == 3


def test_two_gpus_time_a_size_each(tmp_path: Path) -> None:
    batch = Batch(tmp_path, StandInGpu(), StandInGpu())
    batch.run()
    assert [{work.problem for plan in gpu.plans for work in plan.work} for gpu in batch.gpus] == [{ONE}, {TWO}]
    assert all(len(statuses(state)) == 6 for state in batch.states)


@pytest.mark.parametrize("start", [1, 2, 3])
@pytest.mark.parametrize("in_parts", [False, True])
def test_a_size_whose_gpu_fails_is_screened_anew_on_another(
    start: int, in_parts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never by two GPUs, also where the one that failed had timed some of it; and nothing is missing."""
    monkeypatch.setattr("gemm_tuner.pipeline.rounds.LEAST_OF_A_PART", 1 if in_parts else 100)

    def fails(plan: Plan) -> None:
        if len(failing.plans) == start:
            lost(plan)

    failing = StandInGpu(us=dict.fromkeys(NAMES, 1.0), before=fails, stays=True)
    sizes = (ONE, TWO, problem(128, 128, 128), problem(256, 256, 256))
    batch = Batch(tmp_path, failing, StandInGpu(us=dict.fromkeys(NAMES, 2.0), stays=True), sizes=sizes)
    batch.run(CompilesAll(clocked(batch.session), takes_s=2.0))
    for state in batch.states:
        assert statuses(state) == dict.fromkeys(NAMES, "ok")
        assert set(state.screened_us().values()) == {2.0}
        assert set(batch.session.store.timed_on(state.problem, SCREEN)) == {batch.session.gpus.labels[1]}


def test_jobs_deal_a_round_over_several_starts(tmp_path: Path) -> None:
    batch = Batch(tmp_path, search=make_search("full"), jobs=2)
    batch.run()
    assert [list(part) for part in asked(batch.plans)] == [[512], [64]]


def same_code(state: SizeState, *configs: KernelConfig) -> None:
    for one in configs:
        result = CompileResult(one.kernel_symbol, "d", Status.OK, registers=90, binary_hash="ab" * 32)
        state.record_compile(one.name, result)


def test_one_kernel_under_several_names_is_timed_once(tmp_path: Path) -> None:
    """In one round, and over rounds."""
    batch = Batch(tmp_path, StandInGpu(us={NAMES[1]: 40.0}))
    same_code(batch.states[0], *CONFIGS[1:5])
    batch.run()
    timed = [name for plan in batch.plans for work in plan.work if work.problem == ONE for _, name in work.entries]
    assert timed == [NAMES[0], NAMES[1], NAMES[5]]
    rows = batch.states[0].rows
    assert [rows[name]["screen_us"] for name in NAMES[1:5]] == [40.0] * 4
    assert [rows[name]["message"] for name in NAMES[2:5]] == [f"same code as {NAMES[1]}"] * 3
    assert batch.states[0].fastest(9)[0] == NAMES[1] and NAMES[2] not in batch.states[0].fastest(9)


def test_a_wish_to_end_is_heard_after_the_round_is_saved(tmp_path: Path) -> None:
    def press_ctrl_c(plan: Plan) -> None:
        batch.session.limits.interruption.request()

    batch = Batch(tmp_path, StandInGpu(before=press_ctrl_c))
    with pytest.raises(KeyboardInterrupt):
        batch.run()
    assert len(batch.plans) == 1
    assert [timing.name for timing in batch.session.store.timings(ONE, SCREEN)] == NAMES[:2]


def clocked(of: Session) -> Clock:
    """A clock for the budget, which stands still unless a test moves it."""
    clock = Clock(of.limits.budget.began)
    of.limits.budget.clock = clock.monotonic
    return clock


def test_a_budget_leaves_a_share_for_the_finals(tmp_path: Path) -> None:
    def pass_time(plan: Plan) -> None:
        clock.now_s += 40.0

    batch = Batch(tmp_path, StandInGpu(before=pass_time), budget_s=100.0)
    clock = clocked(batch.session)
    batch.run()
    assert len(batch.plans) == 2  # at 0 and 40 s; from 70 s on the time is for the finals
    assert all(plan.deadline > 0 for plan in batch.plans)


def test_compiling_leaves_a_share_of_a_budget_for_timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And for a profiler to start: 5 of the 10 s of a start are before its first kernel, 5 behind its last."""
    batch = Batch(tmp_path, budget_s=100.0)
    clock = clocked(batch.session)
    monkeypatch.setattr(Pace, "start", lambda self: Cost(10.0, 0.0))

    at_s: list[float] = []

    class UsesItsTime(CompilesSome):
        def compile_sizes(self, wanted: Named, title: str, until: float, then: Pairs) -> None:
            clock.now_s = until
            at_s.append(until - batch.session.limits.budget.began)
            super().compile_sizes(wanted, title, until, then)

    batch.run(UsesItsTime())
    assert at_s == pytest.approx([30.0, 45.0, 52.5])  # halves of what is left until 60 s; finals have the last 30
    assert len(batch.plans) == 3


def test_what_the_deadline_cut_off_is_no_failure(tmp_path: Path) -> None:
    def pass_time(plan: Plan) -> None:
        clock.now_s += 80.0

    batch = Batch(tmp_path, StandInGpu(before=pass_time, statuses={NAMES[1]: None}), budget_s=100.0)
    clock = clocked(batch.session)
    batch.run()
    assert statuses(batch.states[0]) == {NAMES[0]: "ok"}


def test_without_a_budget_there_is_no_deadline(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.run()
    assert {plan.deadline for plan in batch.plans} == {0.0}


class Stubborn:
    """Asks for the same name for ever."""

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        return {ONE: [NAMES[0]]}

    def likely_next(
        self, sizes: Sequence[SizeView], device: Device, asked: Mapping[GemmProblem, Collection[str]], count: int
    ) -> Proposals:
        return {}


def test_a_search_that_never_ends_is_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.rounds.MOST_ROUNDS", 4)
    batch = Batch(tmp_path, search=Stubborn())
    with pytest.raises(AssertionError, match="asked for more than 4 rounds"):
        batch.run()
    assert len(batch.plans) == 1  # it was timed once all the same


def run_with(batch: Batch, compiling: CompilesSome) -> None:
    """Notes in the same list what is screened."""

    def note(plan: Plan) -> None:
        compiling.events.append(("screen", [named(one.problem, name) for one in plan.work for _, name in one.entries]))

    batch.gpus[0].before = note
    batch.run(compiling)


def of_both(*places: int) -> list[str]:
    return [f"{m}/{place}" for m in (512, 64) for place in places]


def test_only_what_compiled_is_timed_and_the_next_round_is_offered_first(tmp_path: Path) -> None:
    compiling, batch = CompilesSome(), Batch(tmp_path)
    run_with(batch, compiling)
    in_turns = [[f"{m}/{place}" for place in places for m in (512, 64)] for places in ((2, 3), (4, 5))]
    assert compiling.events == [
        *(("compile", of_both(0, 1)), ("offer", in_turns[0]), ("screen", of_both(1))),
        *(("compile", of_both(2, 3)), ("offer", in_turns[1]), ("screen", of_both(2, 3))),
        *(("compile", of_both(4, 5)), ("offer", []), ("screen", of_both(4, 5))),
    ]
    assert statuses(batch.states[0])[NAMES[0]] == "spilled"
    assert NAMES[0] in view_of(batch.states[0]).failed


def test_a_launcher_that_stays_times_a_part_of_a_round_while_the_rest_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.rounds.LEAST_OF_A_PART", 6)
    batch = Batch(tmp_path, StandInGpu(stays=True), search=make_search("full", round_size=12))
    compiling = CompilesAll(clocked(batch.session), takes_s=2.0)
    run_with(batch, compiling)
    one, two = ([f"{m}/{place}" for place in range(6)] for m in (512, 64))
    assert compiling.events == [
        *(("compile", one), ("meanwhile", two), ("offer", two), ("screen", one)),
        *(("compile", two), ("offer", []), ("screen", two)),
    ]
    assert batch.session.log.facts["search rounds"] == 1
    assert all(statuses(state) == dict.fromkeys(NAMES, "ok") for state in batch.states)


@pytest.mark.parametrize(
    ("stays", "takes_s", "budget_s", "least"),
    [(False, 2.0, 0.0, 6), (True, 0.5, 0.0, 6), (True, 2.0, 1e4, 6), (True, 2.0, 0.0, 7)],
    ids=["a plan costs a start", "compiling takes no time", "budget", "too few"],
)
def test_a_round_is_timed_as_a_whole_where_parts_gain_nothing(
    stays: bool, takes_s: float, budget_s: float, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemm_tuner.pipeline.rounds.LEAST_OF_A_PART", least)
    batch = Batch(tmp_path, StandInGpu(stays=stays), search=make_search("full", round_size=12))
    if budget_s:
        limit(batch.session, Budget(budget_s))
    compiling = CompilesAll(clocked(batch.session), takes_s)
    run_with(batch, compiling)
    assert [names for what, names in compiling.events if what == "screen"] == [of_both(*range(6))]


@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.parametrize("sizes", [3, 4, 6])
def test_each_part_of_a_round_has_a_size_for_every_gpu(
    gpus: int, sizes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes that are dealt part by part would else all go to the first GPUs, and stay there."""
    monkeypatch.setattr("gemm_tuner.pipeline.rounds.LEAST_OF_A_PART", 1)
    there = [StandInGpu(stays=True) for _ in range(gpus)]
    of = [problem(64 * (1 + place), 512, 512) for place in range(sizes)]
    batch = Batch(tmp_path, *there, search=make_search("full", round_size=6 * sizes), sizes=of)
    batch.run(CompilesAll(clocked(batch.session), takes_s=2.0))
    assert [len(gpu.plans) for gpu in there] == [sizes // gpus] * gpus
    counts = [len({work.problem for plan in gpu.plans for work in plan.work}) for gpu in there]
    assert sum(counts) == sizes and max(counts) - min(counts) <= 1


def test_what_a_round_asks_for_is_not_offered_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an earlier part of the round was timed, of which the search has not learned yet."""
    monkeypatch.setattr("gemm_tuner.pipeline.rounds.LEAST_OF_A_PART", 1)
    batch = Batch(tmp_path, StandInGpu(stays=True))
    compiling = CompilesAll(clocked(batch.session), takes_s=2.0)
    run_with(batch, compiling)
    screened: list[str] = []
    for what, names in compiling.events:
        screened += names if what == "screen" else []
        if what == "offer":
            assert not set(names) & set(screened) and len(names) == len(set(names))
    assert len(screened) == 12 and len(batch.plans) == 6
