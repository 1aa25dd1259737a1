"""What a launcher process leaves out: after a deadline, a stop, an early loser, and a lost GPU."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from launcher_on_cpu import NAMES, Launcher, Script, work

from gemm_tuner.launch import bench as bench_module
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.failures import StickyError
from gemm_tuner.launch.timing import LEAST_ROUNDS, finals, screen


def test_screening_stops_between_two_configurations(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    screen(launcher.bench, 0, work(*NAMES), [Script(b=lambda: launcher.stop.touch())])
    assert launcher.events("begin", "end") == [("begin", "a"), ("end", "a"), ("begin", "b"), ("end", "b")]
    assert launcher.bench.stopped


@pytest.mark.parametrize(("seconds_left", "begun"), [(None, 3), (1e6, 3), (-1.0, 0)])
def test_nothing_is_screened_after_the_deadline(seconds_left: float | None, begun: int, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, deadline=0.0 if seconds_left is None else time.time() + seconds_left)
    screen(launcher.bench, 0, work(*NAMES), [Script()])
    assert len(launcher.events("begin")) == begun


def test_every_size_has_its_part_of_the_time_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(bench_module, "time", SimpleNamespace(time=lambda: clock.now_s, perf_counter=time.perf_counter))

    def takes_10_s() -> None:
        clock.now_s += 10

    launcher = Launcher(tmp_path, deadline=1060.0)
    launcher.bench.share_time(3, 5)
    screen(launcher.bench, 0, work(*NAMES), [Script(a=takes_10_s, b=takes_10_s)])
    launcher.bench.share_time(2, 2)
    screen(launcher.bench, 1, work("b", "c"), [Script()])
    assert [name for _, name in launcher.events("end")] == ["a", "b", "c"]


@pytest.mark.parametrize(("seconds_left", "rounds"), [(None, 20), (1e6, 20), (-1.0, LEAST_ROUNDS)])
def test_finals_have_their_least_rounds_after_the_deadline(
    seconds_left: float | None, rounds: int, tmp_path: Path
) -> None:
    deadline = 0.0 if seconds_left is None else time.time() + seconds_left
    launcher = Launcher(tmp_path, deadline=deadline)
    finals(launcher.bench, 0, replace(work("a"), rounds=20), [Script()])
    assert launcher.events("end") == [("end", "a")]
    assert sum(not warm for _, _, warm in launcher.calls()) == rounds


@pytest.mark.parametrize(("best_us", "timed"), [(0.0, 3), (1e6, 3), (10.0, 2)])
def test_a_clear_loser_against_earlier_rounds_is_called_twice(
    best_us: float, timed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host waits 1 ms for each call."""
    clock = iter(range(1000))
    monkeypatch.setattr(
        "gemm_tuner.launch.bench.time",
        SimpleNamespace(perf_counter=lambda: next(clock) / 1000, time=time.time),
    )
    launcher = Launcher(tmp_path)
    screen(launcher.bench, 0, replace(work("a"), best_us=best_us), [Script()])
    assert sum(not warm for _, _, warm in launcher.calls()) == timed


def test_one_stall_of_the_host_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host waits 1 us for each call, and 9 s for the first of b; c is slow."""
    waited_us = iter([1.0, 9e6, 1.0, 900.0, 800.0])
    monkeypatch.setattr(Bench, "timed_call_us", lambda bench, one: (bench.call(one, warm=False), next(waited_us))[1])
    launcher = Launcher(tmp_path)
    screen(launcher.bench, 0, work(*NAMES, best_us=10.0), [Script()])
    assert launcher.stopped_early() == {"a": False, "b": False, "c": True}
    timed = [name for name, _, warm in launcher.calls() if not warm]
    assert [timed.count(name) for name in NAMES] == [3, 3, 2]


def test_each_round_is_journalled_before_it_begins(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    finals(launcher.bench, 0, work("a", "b"), [Script()])
    rows = [json.loads(line) for line in launcher._journal.getvalue().splitlines()]
    kinds = [row.get("number", "call") for row in rows if row["event"] in ("round", "call")][2:]
    assert kinds == [0, "call", "call", 1, "call", "call", 2, "call", "call", 3, "call", "call"]


def test_a_round_that_fails_is_attributed_to_none_yet(tmp_path: Path) -> None:
    left = iter([None] * 3)

    def fails_later() -> None:
        if next(left, "none") == "none":
            raise RuntimeError("unspecified launch failure")

    launcher = Launcher(tmp_path)
    with pytest.raises(StickyError, match="unspecified launch failure"):
        finals(launcher.bench, 0, work("a", "b"), [Script(b=fails_later)])
    assert launcher.events("fail") == launcher.events("end") == []


@pytest.mark.parametrize("words", ["CUDA error: uncorrectable ECC error encountered", "CUDA error: unknown error"])
def test_a_lost_gpu_costs_one_configuration(words: str, tmp_path: Path) -> None:
    """The process ends: all later calls would fail, and be taken for faults of what they launch."""

    def loses_the_gpu() -> None:
        raise RuntimeError(words)

    launcher = Launcher(tmp_path)
    with pytest.raises(StickyError):
        screen(launcher.bench, 0, work(*NAMES), [Script(b=loses_the_gpu)])
    assert launcher.events("fail") == [("fail", "b")] and ("begin", "c") not in launcher.events("begin")
