"""Rows that a profiler loses from recorded traces: what is left has the times it had, and little more is lost."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.launch.journal import read_journal
from gemm_tuner.measure.attribution import Call, calls_of, join
from gemm_tuner.profilers import Nsys

RECORDING = Path(__file__).parents[1] / "data" / "h200_nsys_recording" / "raw"
SPIN_UP = 30
STAGES = ["00-screen", "01-finals"]
# The part of the cases of each test, of which ``make test-all`` takes four times as many.
PARTS = 4 if "FUZZ_EXAMPLES" in os.environ else 1


@dataclass(frozen=True)
class Recorded:
    """A recorded start. Row i of the trace takes 1000 + i us, so that a time says whose it is, and every tile kernel
    has one name, as where configurations differ in arguments alone."""

    trace: pd.DataFrame
    calls: list[Call]

    def times(self, dropped: set[int]) -> dict[tuple[int, str], tuple[float, ...]]:
        return join(self.trace.drop(index=list(dropped)).reset_index(drop=True), self.calls, by_scope=False).samples_us

    def segments(self, rows: set[int]) -> set[int]:
        """The rows that stand between the same two flushes as one of these, or beside one of these that is a flush."""
        number = (self.trace["kernel_name"] == FLUSH_SYMBOL).cumsum()
        near = {one for row in rows for one in (number[row], number[row - 1] if row else 0)}
        return set(self.trace.index[number.isin(near)])


def shared(name: str) -> str:
    return "gemm_tile" if name.startswith("gemm_tile_BM") else name


@cache
def recorded(stage: str, flushes: bool) -> Recorded:
    """flushes: as launchers journal them now, with a spin-up before the first call and before the second work."""
    where = RECORDING / stage / "start00"
    calls = calls_of(read_journal(where / "journal.jsonl"))
    calls = [replace(call, symbols=tuple(shared(symbol) for symbol in call.symbols)) for call in calls]
    trace = Nsys().read(where)
    trace["kernel_name"] = trace["kernel_name"].map(shared)
    if flushes:
        first = {call.work: call.number for call in reversed(calls)}
        spun = [(not call.warm) + SPIN_UP * (first[call.work] == call.number) for call in calls]
        calls = [replace(call, flushes=count) for call, count in zip(calls, spun, strict=True)]
        heads = [at for at, name in enumerate(trace["kernel_name"]) if name in ("gemm_tile", BEGIN_SYMBOL)]
        assert len(heads) == len(calls)
        starts = [heads[number] for number in first.values()]
        flush = trace[trace["kernel_name"] == FLUSH_SYMBOL].iloc[[0] * SPIN_UP]
        parts = [trace.iloc[a:b] for a, b in zip([0, *sorted(starts)], [*sorted(starts), len(trace)], strict=True)]
        trace = pd.concat([part for one in parts for part in (one, flush)][:-1], ignore_index=True)
    trace["duration_ns"] = 1e6 + 1e3 * trace.index
    return Recorded(trace, calls)


def rows_of_times(found: dict[tuple[int, str], tuple[float, ...]]) -> set[float]:
    return {time for times in found.values() for time in times}


def assert_in_order(given: tuple[float, ...], whole: tuple[float, ...]) -> None:
    left = iter(whole)
    assert all(one in left for one in given)


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_what_is_given_though_rows_are_lost_is_what_it_was(stage: str, flushes: bool) -> None:
    """Any rows: kernels, flushes, markers, the vendor library's and others, one or many at once."""
    start = recorded(stage, flushes)
    whole, dice = start.times(set()), random.Random(stage)
    for count in (1, 2, 3, 5, 10, 40, 150) * (3 * PARTS):
        dropped = set(dice.sample(range(len(start.trace)), count))
        for key, given in start.times(dropped).items():
            assert_in_order(given, whole[key])


@pytest.mark.parametrize("stage", STAGES)
def test_a_lost_row_costs_the_calls_between_its_flushes_at_most(stage: str) -> None:
    start = recorded(stage, True)
    whole = start.times(set())
    timed = {call.number for call in start.calls if not call.warm}
    assert len(rows_of_times(whole)) == len(timed) > 70
    for row in random.Random(stage).sample(range(len(start.trace)), 30 * PARTS):
        lost = rows_of_times(whole) - rows_of_times(start.times({row}))
        name = start.trace["kernel_name"][row]
        assert len(lost) <= (0 if name == FLUSH_SYMBOL else 1), name


@pytest.mark.parametrize("stage", STAGES)
def test_many_lost_kernels_cost_no_call_of_another_segment(stage: str) -> None:
    """While no flush is lost, and no configuration loses half of its calls."""
    start, dice = recorded(stage, True), random.Random(stage)
    whole = start.times(set())
    others = [at for at, name in enumerate(start.trace["kernel_name"]) if name != FLUSH_SYMBOL]
    for _ in range(10 * PARTS):
        dropped = set(dice.sample(others, 4))
        given = start.times(dropped)
        if given.keys() == whole.keys():
            near = {float(start.trace["duration_ns"][row]) / 1e3 for row in start.segments(dropped)}
            for key, times in given.items():
                heads = {time for time in set(whole[key]) - set(times) if time < 2000}
                assert heads <= near


def test_the_recording_has_what_these_tests_are_about() -> None:
    names = set(recorded("01-finals", False).trace["kernel_name"])
    assert {BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL, "gemm_tile", "gemm_tile_reduce_SK4"} <= names
