"""Launchers that are started before there is a plan for them; stand-ins take the place of nsys and the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from nsys_on_path import nsys_on_path
from process_samples import ends
from samples import ROOT, problem

from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.journal import Finished, Judged, Process, read_journal
from gemm_tuner.launch.plan import FINALS, LOAD, LOADED_FILE, OPENED_FILE, VERIFY, Method, Plan, Work
from gemm_tuner.launch.turn import WAITING_FILE, Turn
from gemm_tuner.measure.launcher_process import LiveLauncher
from gemm_tuner.measure.openings import Openings
from gemm_tuner.measure.screening import StagedLauncher
from gemm_tuner.measure.starts_ahead import OPENING, WAITING, StartsAhead
from gemm_tuner.profilers.base import Profiler
from gemm_tuner.profilers.clock import Clock
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.system.processes import pid_of

HELPERS = ROOT / "tests" / "helpers"
SIZE = problem(512, 512, 512)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveLauncher:
    """A launcher under an nsys on PATH, whose processes can be started ahead."""
    nsys_on_path(tmp_path, monkeypatch)
    monkeypatch.setenv("STAND_IN_NOTES", str(tmp_path))
    live = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda").starting_ahead(tmp_path / "ahead")
    return replace(live, ahead=replace(ahead_of(live), script=HELPERS / "waiting_stand_in.py"))


def ahead_of(launcher: LiveLauncher) -> StartsAhead:
    assert launcher.ahead is not None
    return launcher.ahead


def born(folder: Path, number: int, ahead: str = "ahead") -> int:
    """The process of the launcher that was started ahead as this number, when it is there."""
    note, deadline = folder / ahead / f"{number:02d}" / "born", time.monotonic() + 300
    while not note.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return int(note.read_text())


def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def timed_by(launcher: LiveLauncher, folder: Path, name: str) -> int:
    """Times a configuration in finals; returns the process that did so. Its files lie in the folder of its start."""
    work = Work(SIZE, ((0, name),))
    plan = Plan(FINALS, (str(HELPERS / "launcher_stand_in.py"),), (work,), Method(timed_calls=2))
    done = launcher.timings(plan, folder)
    assert done.timings[SIZE, name].samples_us == (11.0, 12.0)
    last = max(folder.glob("start*"))
    assert {"launcher.log", "trace.nsys-rep", "journal.jsonl"} <= {path.name for path in last.iterdir()}
    return process_of(last)


def process_of(start: Path) -> int:
    journal = read_journal(start / "journal.jsonl")
    return next(pid_of(event.identity) for event in journal if isinstance(event, Process))


def test_what_waits_is_used_first_and_others_are_started_with_their_plan(
    launcher: LiveLauncher, tmp_path: Path
) -> None:
    launcher.prepare_finals(2)
    waiting = [born(tmp_path, 0), born(tmp_path, 1)]
    pids = [timed_by(launcher, tmp_path / f"{number}-finals", "good_1") for number in range(3)]
    assert pids[:2] == waiting and pids[2] not in waiting
    assert not list((tmp_path / "ahead").iterdir())


def test_a_profiler_in_the_process_goes_on_after_a_launcher_that_waited() -> None:
    """Proton of Triton 3.6 executes the launcher so, and writes its report after that; SystemExit would end it."""
    code = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); print(7)"
    argv = [sys.executable, "-c", code, str(WAITING), "none", "."]
    done = subprocess.run(argv, input="", env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_what_waits_too_long_is_ended(launcher: LiveLauncher, tmp_path: Path) -> None:
    launcher.prepare_finals(2)
    launcher.prepare_finals(1)  # at once: the second may not have begun
    first = born(tmp_path, 0)
    launcher.prepare_finals(0)
    assert ends(first) and not list((tmp_path / "ahead").iterdir())


def test_a_round_of_screening_ends_none_that_waits_for_the_finals(launcher: LiveLauncher, tmp_path: Path) -> None:
    staged = StagedLauncher(launcher, launcher, print)
    counts = []
    for change in (
        staged.prepare,
        partial(staged.prepare_finals, 3),
        staged.prepare,
        partial(staged.prepare_finals, 0),
    ):
        change()
        counts.append(len(list((tmp_path / "ahead").iterdir())))
    assert counts == [1, 3, 3, 0]


def test_one_that_died_while_it_waited_costs_nothing(launcher: LiveLauncher, tmp_path: Path) -> None:
    launcher.prepare_finals(1)
    gone = born(tmp_path, 0)
    os.kill(gone, signal.SIGKILL)
    assert ends(gone)
    assert timed_by(launcher, tmp_path / "0-finals", "good_1") != gone


def test_one_that_cannot_be_told_what_to_load_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(plan: Plan, path: Path) -> None:
        raise OSError("no space left on device")

    of = ("none", str(tmp_path)), tmp_path / "ahead"
    starts = StartsAhead(lambda argv, _: argv, lambda: {**os.environ, "PYTHONPATH": str(ROOT)}, *of)
    starts.open_some(Plan(FINALS, (), (), Method()), 0)
    monkeypatch.setattr(Plan, "write", full)
    starts.prepare(1)
    assert starts.take() is None and not list((tmp_path / "ahead").iterdir())


def test_what_libraries_set_meanwhile_costs_no_start(
    launcher: LiveLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scikit-learn, which a search imports, sets two variables."""
    launcher.prepare_finals(1)
    waiting = born(tmp_path, 0)
    monkeypatch.setenv("KMP_INIT_AT_FORK", "FALSE")
    assert timed_by(launcher, tmp_path / "0-finals", "good_1") == waiting


def test_what_a_killed_run_left_is_no_obstacle(launcher: LiveLauncher, tmp_path: Path) -> None:
    (tmp_path / "ahead" / "00").mkdir(parents=True)
    launcher.prepare_finals(1)
    waiting = born(tmp_path, 1)
    assert timed_by(launcher, tmp_path / "0-finals", "good_1") == waiting


def test_what_is_timed_again_leaves_as_many_that_wait(
    launcher: LiveLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that follow count on them: one that starts with its plan takes nine seconds."""
    monkeypatch.setenv("NSYS_FAULT", "no recording at first")
    launcher.prepare_finals(3)
    waiting = [born(tmp_path, number) for number in range(3)]
    assert timed_by(launcher, tmp_path / "0-finals", "good_1") == waiting[1]
    assert process_of(tmp_path / "0-finals" / "start00") == waiting[0]
    assert sorted(path.name for path in (tmp_path / "ahead").glob("[0-9]*")) == ["02", "03"]
    launcher.prepare_finals(0)


def test_a_crash_in_one_that_waited_is_attributed_as_ever(launcher: LiveLauncher, tmp_path: Path) -> None:
    launcher.prepare_finals(1)
    works = (Work(SIZE, ((0, "late_1"), (0, "good_2"))),)
    plan = Plan(FINALS, (str(HELPERS / "launcher_stand_in.py"),), works, Method(timed_calls=2))
    done = launcher.timings(plan, tmp_path / "0-finals")
    assert {name: one.status.value for (_, name), one in done.timings.items()} == {"late_1": "crashed", "good_2": "ok"}


def test_a_check_uses_what_waits_for_it_and_does_not_wait_for_its_end(
    launcher: LiveLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with a context takes 0.4 s to end, and all is said when its journal is whole."""
    monkeypatch.setenv("STAND_IN_END", "never")
    checks = launcher.checks_ahead
    assert checks is not None
    launcher = replace(launcher, checks_ahead=replace(checks, script=HELPERS / "waiting_stand_in.py"))
    launcher.prepare_check()
    launcher.prepare_finals(1)
    waiting = born(tmp_path / "ahead" / "checks", 0, "")
    plan = Plan(VERIFY, (str(HELPERS / "launcher_stand_in.py"),), (Work(SIZE, ((0, "good_1"),)),), Method())
    heard: list[bool] = []
    launcher.verdicts(
        plan, tmp_path / "verify", lambda _, event: heard.append(event.ok) if isinstance(event, Judged) else None
    )
    (start,) = (tmp_path / "verify").iterdir()
    assert heard and all(heard) and process_of(start) == waiting and ends(waiting)
    other = born(tmp_path, 0)
    launcher.close()
    assert ends(other)


def test_without_named_pipes_nothing_waits(
    launcher: LiveLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ahead").write_text("a file: there can be no folder of this name")
    launcher.prepare_finals(1)
    assert timed_by(launcher, tmp_path / "0-finals", "good_1")


def beside_timing(tmp_path: Path, profiler: Profiler) -> tuple[LiveLauncher, Turn]:
    """(a launcher whose processes start ahead, who is timing on its GPU)."""
    timing = Turn(tmp_path / "turn", tmp_path)
    timing.take()
    timing.begin_timing()
    live = LiveLauncher(LANGUAGE, profiler, tmp_path / "cache", tmp_path, "cpu", turn=tmp_path / "turn")
    return live.starting_ahead(tmp_path / "ahead"), timing


def waiting_to_open(tmp_path: Path) -> tuple[LiveLauncher, Turn, Path]:
    """(a launcher whose process for checks waits to open the GPU, who is timing on it, that process's folder)."""
    (launcher, timing), folder = beside_timing(tmp_path, Nsys()), tmp_path / "ahead" / "checks" / "00"
    launcher.prepare_check()
    launcher.open_check(Plan(VERIFY, (), (Work(SIZE, ()),), Method()))
    until((folder / WAITING_FILE).exists)
    (tmp_path / "script.py").touch()
    return launcher, timing, folder


def test_what_waits_for_a_check_opens_the_gpu_while_none_is_timing(tmp_path: Path) -> None:
    """In good time: it then has the context and the reference's own kernels when its plan comes. Told again, it has."""
    launcher, timing, folder = waiting_to_open(tmp_path)
    try:
        timing.end()
        until(lambda: not (folder / WAITING_FILE).exists())
        launcher.open_check(Plan(VERIFY, (), (Work(SIZE, ()),), Method()))
        launcher.verdicts(Plan(VERIFY, ("script.py",), (), Method()), tmp_path / "verify")
        (start,) = (tmp_path / "verify").iterdir()
        assert (start / OPENING).exists() and Finished() in read_journal(start / "journal.jsonl")
    finally:
        launcher.close()


def test_what_gets_its_plan_while_it_waits_to_open_the_gpu_is_not_taken_to_hang(tmp_path: Path) -> None:
    """Finals of large sizes time for minutes."""
    launcher, timing, _ = waiting_to_open(tmp_path)
    where = tmp_path / "start00"
    where.mkdir()
    Plan(VERIFY, ("script.py",), (), Method()).write(where / "plan.json")
    looks = 0

    def heartbeat() -> object:
        nonlocal looks
        looks += 1
        if looks == 4:
            timing.end()
        return looks if looks > 4 else None

    assert launcher.checks_ahead is not None
    waiting = launcher.checks_ahead.take()
    assert waiting is not None
    ended = waiting.run(where / "plan.json", heartbeat, lambda: 0.0)
    assert not ended.stalled and Finished() in read_journal(where / "journal.jsonl")


def test_what_waited_before_its_plan_does_not_wait_by_it(launcher: LiveLauncher, tmp_path: Path) -> None:
    """One that is killed while it waits to open the GPU leaves a file that says so; the next with the plan works."""
    launcher.prepare_check()
    ahead = launcher.checks_ahead
    assert ahead is not None
    waiting = ahead.take()
    assert waiting is not None
    (waiting.folder / WAITING_FILE).touch()
    (tmp_path / "start00").mkdir()
    waiting.close(tmp_path / "start00")
    assert (tmp_path / "start00" / "launcher.log").exists() and not (tmp_path / "start00" / WAITING_FILE).exists()


@pytest.mark.parametrize("library", ["CDLL", "PyDLL"])
def test_one_that_hangs_while_it_opens_the_gpu_ends(library: str) -> None:
    """Also in a call that keeps the interpreter's lock, as torch's of CUDA's initialisation does."""
    code = "import ctypes\nfrom gemm_tuner.launch.opening import ends_process_after\n"
    code += f"with ends_process_after(0.01):\n    ctypes.{library}(None).sleep(300)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=100, capture_output=True, text=True)
    assert ended.returncode == 1 and "Timeout" in ended.stderr


def test_a_launcher_that_waits_has_started_the_driver(tmp_path: Path) -> None:
    """Which makes no context; launchers do so one after the other, and those that open the GPU are waited for."""
    code = """
import sys
from gemm_tuner.launch import waiting
from gemm_tuner.launch.processor import Cpu

class Noted(Cpu):
    def start_driver(self):
        print("driver")

waiting.processor_of = lambda device: Noted()
waiting.load_for = lambda *of: print("scripts")
waiting.main(["gemm_tuner", sys.argv[1]])
"""
    said = f"{LOAD} {tmp_path / 'loading.json'}\n"
    argv = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(argv, input=said, capture_output=True, text=True, cwd=ROOT, check=True, timeout=240)
    assert done.stdout.splitlines() == ["driver", "scripts"]


def test_without_the_library_of_a_driver_none_is_started(tmp_path: Path) -> None:
    """As with ROCm."""
    code = "import ctypes, gemm_tuner.launch.processor as of\ndef missing(name): raise OSError(name)\n"
    code += "ctypes.CDLL = missing\nof.Gpu.start_driver(object())"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=240)


def test_launchers_open_the_gpu_for_finals_and_checks_a_few_at_a_time(tmp_path: Path) -> None:
    """Only those that have loaded what they need besides it: nobody waits for that. Each is told once, and a launcher
    that has opened it times as ever. What is started later loads for the same."""
    launcher, timing = beside_timing(tmp_path, Clock())
    (tmp_path / "script.py").write_text("CONFIGS = {}")
    plans = [Plan(stage, (), (Work(SIZE, ()),), Method()) for stage in (FINALS, VERIFY)]
    try:
        launcher.prepare_finals(2)
        launcher.prepare_check()
        assert launcher.open_ahead(plans, 0) == Openings(0, 3)
        until(lambda: len(list(tmp_path.rglob(LOADED_FILE))) == 3)
        assert launcher.open_ahead(plans, 2) == Openings(2, 1)
        assert launcher.open_ahead(plans, 2) == Openings(2, 1)
        timing.end()
        until(lambda: launcher.open_ahead(plans, 0) == Openings(0, 1))
        assert launcher.open_ahead(plans, 2).left == 0
        until(lambda: launcher.open_ahead(plans, 2) == Openings(0, 0))
        assert len(list(tmp_path.rglob(f"*{OPENING}"))) == 3
        more = [Plan(FINALS, (), (), Method()), plans[1]]
        launcher.open_ahead(more, 0)
        assert len(list(tmp_path.rglob(f"*{OPENING}"))) == 3
        launcher.open_ahead(more, 2)
        assert len(list(tmp_path.rglob(f"*{OPENING}"))) == 5  # what was open reads kernels
        launcher.prepare_finals(3)
        until(lambda: len(list(tmp_path.rglob(LOADED_FILE))) == 4)
        assert launcher.open_ahead(plans, 2, 2) == Openings(0, 0)
        assert launcher.open_ahead(plans, 0) == Openings(0, 1)
        start = tmp_path / "finals"
        start.mkdir()
        Plan(FINALS, ("script.py",), (Work(SIZE, ()),), Method(), device="cpu").write(start / "plan.json")
        waiting = ahead_of(launcher).take()
        assert waiting is not None
        waiting.run(start / "plan.json", time.monotonic, lambda: 60.0)
        assert (start / OPENING).exists() and Finished() in read_journal(start / "journal.jsonl")
        assert not list(start.glob(LOADED_FILE)) and not list(start.glob(OPENED_FILE))
    finally:
        launcher.close()


@pytest.mark.parametrize("by_range", [True, False])
def test_launchers_of_finals_record_from_when_they_open_the_gpu_and_those_of_checks_do_not(
    by_range: bool, tmp_path: Path
) -> None:
    class Records(Clock):
        uses_capture_range = by_range

    launcher, _ = beside_timing(tmp_path, Records())  # so that they wait to open it
    try:
        launcher.prepare_finals(1)
        launcher.prepare_check()
        plans = [Plan(stage, (), (Work(SIZE, ()),), Method()) for stage in (FINALS, VERIFY)]
        launcher.open_ahead(plans, 0)
        until(lambda: len(list(tmp_path.rglob(LOADED_FILE))) == 2)
        launcher.open_ahead(plans, 2)
        told = [Plan.read(path) for path in tmp_path.rglob(f"*{OPENING}")]
        assert {one.stage: one.capture_range for one in told} == {FINALS: by_range, VERIFY: False}
    finally:
        launcher.close()
