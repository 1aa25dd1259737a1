"""Rounds of a search against a stand-in GPU: what is timed, once each, what is learned, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from round_batches import CONFIGS, NAMES, ONE, TWO, Batch, CompilesAll, Pairs, Stubborn, asked, clocked, statuses
from samples import problem
from tuning import StandInGpu, lost

from gemm_tuner.core.records import CompileResult, Device, Status, Timing
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.launch.plan import SCREEN, Plan
from gemm_tuner.pipeline.round_parts import view_of
from gemm_tuner.search import Proposals, Requested, SizeView, make_search
from gemm_tuner.space.size_state import Named, SizeState

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_the_full_search_times_everything_once_predicted_best_first(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.run()
    assert asked(batch.plans) == [{512: part, 64: part} for part in (NAMES[:2], NAMES[2:4], NAMES[4:])]
    assert all(statuses(state) == dict.fromkeys(NAMES, "ok") for state in batch.states)
    assert batch.session.log.facts["search rounds"] == batch.session.log.facts["profiler starts"] == 3


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


@pytest.mark.parametrize("all_known", [True, False])
def test_a_search_that_goes_on_sees_finished_sizes_and_times_none_of_them(all_known: bool, tmp_path: Path) -> None:
    """Else it would ask for other configurations of the rest than without the interruption."""

    class SharesKernels(Stubborn):
        def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
            of_two = next((size for size in sizes if size.problem == TWO), None)
            if of_two and not of_two.knows(NAMES[1]):
                return {TWO: NAMES[1:2]}
            names = NAMES[:1] if of_two is None else NAMES[1:2]
            return {ONE: names} if not sizes[0].knows(names[0]) else {}

    batch = Batch(tmp_path, search=SharesKernels())
    everything = list(batch.states)
    finished = batch.states.pop()
    if all_known:
        finished.record_timing(Timing(TWO, NAMES[1], Status.OK, (1.0,)), SCREEN)
    rounds = batch.rounds()
    rounds.of_run = everything
    while asked_now := rounds.propose():
        rounds.learn(rounds.time(asked_now))
    assert asked(batch.plans) == [{512: NAMES[1:2] if all_known else NAMES[:1]}]


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
@pytest.mark.parametrize(("of_a_part", "of_a_size"), [(100, 100), (1, 100), (1, 1)], ids=["whole", "sizes", "shares"])
def test_a_size_whose_gpu_fails_is_screened_anew_on_another(
    start: int, of_a_part: int, of_a_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never by two GPUs, also where the one that failed had timed some of it; and nothing is missing. A round is timed
    as a whole, in parts of whole sizes, and in parts that have a share of every size."""
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_PART", of_a_part)
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_SIZE", of_a_size)

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


class AsksFor:
    """Asks for these names in their order, in one round."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        return {} if any(size.timed_us for size in sizes) else {ONE: self.names}

    def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
        return {}


@pytest.mark.parametrize("backwards", [False, True])
def test_a_kernel_of_an_earlier_part_of_the_round_is_not_timed_again(
    backwards: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A size that is alone is timed in shares, so that the GPU does not wait until all of it is compiled; whichever of
    several equal kernels is asked for first stands for the others."""
    monkeypatch.setattr("gemm_tuner.pipeline.round_parts.LEAST_OF_A_SIZE", 2)
    order = NAMES[::-1] if backwards else NAMES
    first, *others = [name for name in order if name in NAMES[1:5]]
    gpu = StandInGpu(us={first: 40.0}, stays=True)
    batch = Batch(tmp_path, gpu, search=AsksFor(order), sizes=(ONE,))

    class CompilesEqual(CompilesAll):
        def compile_sizes(self, wanted: Named, title: str, until: float, then: Pairs) -> None:
            super().compile_sizes(wanted, title, until, then)
            there = {name for state, names in wanted for name in names}
            same_code(batch.states[0], *(one for one in CONFIGS[1:5] if one.name in there))

    compiling = CompilesEqual(clocked(batch.session), takes_s=2.0)
    batch.run(compiling)
    assert [len(names) for what, names in compiling.events if what == "compile"] == [2, 2, 2]
    assert [set(names) for plan in asked(batch.plans) for names in plan.values()] == [set(order[:2]), {order[5]}]
    state = batch.states[0]
    assert state.screened_us() == {**dict.fromkeys([first, *others], 40.0), NAMES[0]: 100.0, NAMES[5]: 100.0}
    assert state.fastest(9)[0] == first and not set(others) & set(state.fastest(9))
