"""Finals against a stand-in GPU: who contends, when more rounds run, and what a throttled block is worth."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import config, problem
from tuning import StandInGpu, ledger_of, scripts_of, session

from gemm_tuner import gpu_watch
from gemm_tuner.contest import joined
from gemm_tuner.finals import Finals
from gemm_tuner.fleet import Fleet
from gemm_tuner.gpu_watch import Sample
from gemm_tuner.launcher.plan import AGAIN, FINALS, SCREEN, VENDOR, Plan, Work
from gemm_tuner.prepare import Setting
from gemm_tuner.records import Status, Timing

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
CONFIGS = tuple(config(num_stages=stages) for stages in (2, 3, 4))
A, B, C = (one.name for one in CONFIGS)
NOISE = 0.03  # so that a difference of half a percent needs more rounds than one block has


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Match:
    """The finals of two sizes with three finalists each."""

    def __init__(self, folder: Path, gpu: StandInGpu, **settings: Any) -> None:
        self.gpu, self.session = gpu, session(folder, ONE, TWO, **settings)
        self.ledgers = [ledger_of(size, CONFIGS) for size in (ONE, TWO)]
        self.finals = Finals(self.session, scripts_of(self.ledgers), Fleet([gpu], print))

    def run(self) -> Finals:
        self.finals.run([(ledger, list(ledger.kept)) for ledger in self.ledgers])
        return self.finals

    def works(self) -> list[list[Work]]:
        return [list(plan.work) for plan in self.gpu.plans]


def test_the_finalists_run_with_the_vendor_library_and_one_of_them_twice(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, drift=0.03, jitter=0.001))
    finals = match.run()
    ((one, two),) = match.works()
    assert (one.problem, two.problem) == (ONE, TWO)
    assert [name for _, name in one.entries] == [A, B, C] and one.vendor and one.again == A and one.rounds == 0
    assert {timing.name for timing in finals.timings[ONE]} == {A, B, C, VENDOR, AGAIN}
    assert finals.contests[ONE].order == (A, B, C)
    noise = finals.contests[ONE].noise_pct
    assert noise is not None and 0 < noise < 0.2
    assert match.ledgers[0].rows[A]["finals_us"] == pytest.approx(50.0, rel=0.04)
    ranked = finals.ranked(match.ledgers[0])
    assert [timing.name for timing in ranked.timings] == [A, B, C]
    assert ranked.vendor is not None and ranked.vendor.name == VENDOR


def test_what_is_undecided_runs_on_and_the_decided_does_not(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 100.0, B: 100.4, C: 150.0}, jitter=NOISE), iters=20)
    finals = match.run()
    assert len(match.works()) == 2
    for work in match.works()[1]:
        assert {name for _, name in work.entries} == {A, B}
        assert (work.rounds, work.vendor, work.again) == (40, True, "")
        timings = {timing.name: len(timing.samples_us) for timing in finals.timings[work.problem]}
        assert timings == {A: 60, B: 60, C: 20, VENDOR: 60, AGAIN: 20}
    assert {len(t.samples_us) for t in match.session.store.timings(ONE, FINALS)} == {20, 40}
    assert match.ledgers[0].rows[A]["finals_samples"] == 60


@pytest.mark.parametrize("why", ["decided", "replayed", "asked to end", "out of time"])
def test_no_second_block_where_none_is_needed_or_possible(why: str, tmp_path: Path) -> None:
    times = {A: 100.0, B: 110.0, C: 120.0} if why == "decided" else {A: 100.0, B: 100.4, C: 120.0}
    match = Match(tmp_path, StandInGpu(us=times, jitter=0.0 if why == "decided" else NOISE))
    if why == "replayed":
        recording: Any = object()
        here = match.session.setting
        match.session.setting = Setting(here.device, here.gpus, here.machine, recording)
    elif why == "asked to end":
        match.session.interruption._event.set()
    elif why == "out of time":
        match.session.settings = replace(match.session.settings, budget_s=60.0)
        match.session.started -= 60
    assert match.run().contests[ONE].order
    assert len(match.works()) == 1


def test_finals_are_had_together_or_not_at_all(tmp_path: Path) -> None:
    """What a killed run had left of them is dropped."""
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}))
    match.session.store.add_timings([Timing(ONE, C, Status.OK, (1.0,) * 30)], FINALS)
    assert match.run().contests[ONE].order[0] == A
    assert len(match.session.store.timings(ONE, FINALS)) == 5


def test_one_that_fails_in_the_finals_is_out(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={B: 60.0, C: 70.0}, statuses={A: Status.CRASHED}))
    finals = match.run()
    assert finals.contests[ONE].order == (B, C)
    assert match.ledgers[0].rows[A]["status"] == "crashed"


def test_what_failed_in_finals_that_died_is_not_ranked_by_its_screening(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(statuses=dict.fromkeys((A, B, C), Status.CRASHED)))
    screened = [Timing(ONE, name, Status.OK, (us,) * 5) for name, us in ((A, 9.0), (B, 7.0), (C, 8.0))]
    match.session.store.add_timings(screened, SCREEN)
    finals = match.run()
    assert finals.ranked(match.ledgers[0]).timings == ()
    assert finals.ranked(match.ledgers[1]).timings == ()


def test_a_size_whose_finals_died_keeps_the_order_of_its_screening(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(statuses={A: Status.CRASHED}))
    screened = [Timing(ONE, name, Status.OK, (us,) * 5) for name, us in ((A, 6.0), (B, 7.0), (C, 5.0))]
    match.session.store.add_timings(screened, SCREEN)
    match.finals.run([(match.ledgers[0], [A])])
    assert [timing.name for timing in match.finals.ranked(match.ledgers[0]).timings] == [C, B]


def test_a_size_without_finalists_is_left_out(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu())
    match.finals.run([(match.ledgers[0], []), (match.ledgers[1], [A, B])])
    assert [work.problem for works in match.works() for work in works] == [TWO]
    assert ONE not in match.finals.contests


def test_the_noise_of_all_sizes_is_kept_as_median_and_most(tmp_path: Path) -> None:
    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, jitter=0.002))
    finals = match.run()
    finals.note_noise()
    each = [finals.contests[size].noise_pct or 0.0 for size in (ONE, TWO)]
    assert match.session.notes["noise_pct"] == (round(sum(each) / 2, 3), round(max(each), 3))


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


@pytest.mark.parametrize(("hot", "blocks"), [(0, 1), (1, 2), (5, 2)])
def test_a_throttled_block_is_repeated_once(
    hot: int, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_watch, "PERIOD_S", 0.001)
    sensor = HotAtFirst(hot)

    def wait_for_a_reading(plan: Plan) -> None:
        sensor.wait_for_block(len(match.gpu.plans))

    match = Match(tmp_path, StandInGpu(us={A: 50.0, B: 60.0, C: 70.0}, before=wait_for_a_reading))
    match.session.sensor = sensor
    finals = match.run()
    assert len(match.works()) == blocks
    assert {len(timing.samples_us) for timing in finals.timings[ONE]} == {30}  # of the last block alone
    titles = ["finals", "finals, again: the GPU was throttled"][:blocks]
    assert list(match.session.notes["gpu"]) == titles
    assert match.session.notes["gpu"]["finals"]["throttled"] == (hot > 0)


def test_blocks_are_joined_by_contender() -> None:
    def ran(name: str, *samples_us: float) -> Timing:
        return Timing(ONE, name, Status.OK if samples_us else Status.CRASHED, samples_us)

    before = [ran(A, 1.0, 2.0), ran(B, 3.0), ran(C)]
    assert joined([*before, ran(A, 4.0), ran(B), ran(C, 5.0)]) == [ran(A, 1.0, 2.0, 4.0), ran(B, 3.0), ran(C, 5.0)]
    assert joined(before) == before
