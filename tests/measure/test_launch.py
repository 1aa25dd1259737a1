"""Launcher processes that work, die, hang and lie, under an nsys that does; stand-ins take the place of both."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hang_clock import LIMIT_S, NOTES, HangClock
from launchers_in_process import run_launchers_here
from nsys_on_path import nsys_on_path
from process_samples import ends
from samples import ROOT, TEMPLATES, config, device, problem

from gemm_tuner.compile import compile_tasks
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, CannotWrite, EnvironmentFault
from gemm_tuner.core.records import Problem, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.journal import Begin, End, Event, Fail, Judged, Process, Round, read_journal
from gemm_tuner.launch.plan import EXIT_CANNOT_WRITE, FINALS, SCREEN, STOP_FILE, VENDOR, VERIFY, Method, Plan, Work
from gemm_tuner.launch.turn import WAITING_FILE
from gemm_tuner.measure import launcher_process as launch
from gemm_tuner.measure import replay, retry, supervise
from gemm_tuner.measure.device import Machine, visible_gpu
from gemm_tuner.measure.launcher_events import Again, Died, Heard, at_each_end, ignore
from gemm_tuner.measure.launcher_process import InterpreterLauncher, LiveLauncher, launcher_env
from gemm_tuner.measure.parse_run import at_end, halves
from gemm_tuner.measure.profiler_faults import profiler_failed
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.measure.supervise import ACCOUNTED, PROBE, JournalTail
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.source import codegen
from gemm_tuner.system import processes
from gemm_tuner.system.processes import Ended, pid_of

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
HELPERS = ROOT / "tests" / "helpers"
Run = Callable[..., StageRun]


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nsys on PATH."""
    monkeypatch.setenv("STAND_IN_NOTES", str(nsys_on_path(tmp_path, monkeypatch)))


@pytest.fixture
def here(nsys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both stand-ins are called in this process: for what becomes of journals, traces and exit statuses."""
    run_launchers_here(monkeypatch)


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of what hangs is over at once."""
    monkeypatch.setenv(NOTES, str(tmp_path / "hangs"))
    monkeypatch.setattr(processes, "time", HangClock(tmp_path / "hangs"))


def plan(*work: tuple[GemmProblem, list[str]], stage: str = SCREEN, vendor: bool = False, **fields: Any) -> Plan:
    works = tuple(Work(size, tuple((0, name) for name in names), vendor) for size, names in work)
    return Plan(stage, (str(HELPERS / "launcher_stand_in.py"),), works, Method(timed_calls=2), **fields)


@pytest.fixture
def run(nsys: None, tmp_path: Path) -> Run:
    def run(*work: tuple[GemmProblem, list[str]], **fields: Any) -> StageRun:
        launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda")
        return launcher.timings(plan(*work, **fields), tmp_path / "00-screen")

    return run


def statuses(run: StageRun, size: GemmProblem = ONE) -> dict[str, str]:
    return {name: timing.status.value for (one, name), timing in run.timings.items() if one == size}


@pytest.mark.parametrize("tables", [False, True])
def test_all_well(run: Run, tables: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_COMPILES", "2")
    if tables:
        monkeypatch.setenv("NSYS_TABLES", "")
    done = run((ONE, ["good_1", "split_2", "slow_3"]), (TWO, ["good_1"]), vendor=True, stage=FINALS)
    samples = {(size.m, name): timing.samples_us for (size, name), timing in done.timings.items()}
    assert samples == {
        (512, "good_1"): (11.0, 12.0),
        (512, "split_2"): (42.0, 44.0),
        (512, "slow_3"): (31.0, 32.0),
        (512, VENDOR): (5.0,),
        (64, "good_1"): (11.0, 12.0),
        (64, VENDOR): (5.0,),
    }
    assert statuses(done) == {"good_1": "ok", "split_2": "ok", "slow_3": "early_stopped", VENDOR: "ok"}
    assert (done.starts, done.compiled) == (1, 2)
    assert done.seconds > 0
    assert bool(list(tmp_path.glob("00-screen/*/*.csv"))) != tables


def test_events_are_heard_as_they_happen(nsys: None, tmp_path: Path) -> None:
    heard: list[tuple[type, str, Problem]] = []
    counted: list[int] = []
    count = at_each_end(lambda: counted.append(len(heard)))

    def hear(of: Problem, event: Heard) -> None:
        heard.append((type(event), event.name, of))
        count(of, event)

    launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda")
    launcher.timings(plan((ONE, ["good_1", "fails_2"]), (TWO, ["good_3"])), tmp_path / "stage", hear)
    assert heard == [
        (Begin, "good_1", ONE),
        (End, "good_1", ONE),
        (Begin, "fails_2", ONE),
        (Fail, "fails_2", ONE),
        (Begin, "good_3", TWO),
        (End, "good_3", TWO),
    ]
    assert counted == [2, 4, 6]


def test_one_that_cannot_be_launched(here: None, run: Run) -> None:
    done = run((ONE, ["fails_1", "good_2"]))
    assert statuses(done) == {"fails_1": "launch_error", "good_2": "ok"}
    assert done.timings[ONE, "fails_1"].message == "RuntimeError: no"
    assert done.starts == 1


def test_nothing_can_be_launched(here: None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS_FAULT", "no kernels")
    assert statuses(run((ONE, ["fails_1", "fails_2"]))) == {"fails_1": "launch_error", "fails_2": "launch_error"}


@pytest.mark.parametrize("fault", ["", "nothing after a crash", "loss at a crash"])
def test_one_that_kills_the_process_costs_itself_only(
    request: pytest.FixtureRequest, run: Run, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The process where nothing else goes wrong."""
    if fault:
        request.getfixturevalue("here")
    monkeypatch.setenv("NSYS_FAULT", fault)
    done = run((ONE, ["good_1", "split_2", "kills_3", "good_4"]), (TWO, ["good_1", "kills_3"]))
    assert statuses(done) == {"good_1": "ok", "split_2": "ok", "kills_3": "crashed", "good_4": "ok"}
    assert statuses(done, TWO) == {"good_1": "ok", "kills_3": "crashed"}
    assert done.timings[ONE, "good_1"].samples_us == (11.0, 12.0)
    assert done.starts == (3 if fault else 2)
    assert done.timings[ONE, "kills_3"].message == "exit status 139"


def test_after_a_crash_the_profiler_has_its_time_to_write(
    nsys: None, hangs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than one configuration may take: what ran before the crash keeps its times."""
    monkeypatch.setenv("NSYS_FAULT", "slow report")
    launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda", launch_limit_s=LIMIT_S)
    done = launcher.timings(plan((ONE, ["good_1", "kills_2", "good_3"])), tmp_path / "00-screen")
    assert statuses(done) == {"good_1": "ok", "kills_2": "crashed", "good_3": "ok"}
    assert entries_of(tmp_path / "00-screen") == [["good_1", "kills_2", "good_3"], ["good_3"]]


def test_a_cancelled_run_does_not_wait_for_the_export(
    nsys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_FAULT", "stats never ends")
    launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda")
    note = tmp_path / "00-screen" / "start00" / "stats.pid"
    with ThreadPoolExecutor(1) as pool:
        timing = pool.submit(launcher.timings, plan((ONE, ["good_1"])), tmp_path / "00-screen")
        while not (note.exists() and note.read_text()):
            assert not timing.done()
            time.sleep(0.01)
        launcher.cancel()
        assert isinstance(timing.exception(timeout=240), KeyboardInterrupt)
    assert ends(int(note.read_text()))


def test_one_that_loses_the_gpu_is_reported_in_its_own_words(here: None, run: Run) -> None:
    done = run((ONE, ["good_1", "sticky_2", "good_3"]))
    assert statuses(done) == {"good_1": "ok", "sticky_2": "crashed", "good_3": "ok"}
    assert done.timings[ONE, "sticky_2"].message == "illegal memory access"
    assert done.starts == 2


def test_one_that_somebody_kills_runs_again_once(run: Run, tmp_path: Path) -> None:
    done = run((ONE, ["good_1", "killed_2", "good_3"]), (TWO, ["killed_twice_4", "good_5"]))
    assert statuses(done) == {"good_1": "ok", "killed_2": "ok", "good_3": "ok"}
    assert statuses(done, TWO) == {"killed_twice_4": "crashed", "good_5": "ok"}
    assert done.starts == 4
    accounted = [(tmp_path / "00-screen" / f"start{n:02d}" / ACCOUNTED).exists() for n in range(4)]
    assert accounted == [False, False, True, True]  # a resumed run counts the first two


@pytest.mark.parametrize("stage", [SCREEN, FINALS])
def test_a_profiler_that_fails_on_much_has_another_try_with_less(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """As an nsys whose import stumbles over a long trace: 12 kernels are too much here, 6 are not. It is said once, and
    how many of them end again."""
    monkeypatch.setenv("NSYS_FAULT", "too much")
    ended: list[str] = []
    again: list[Again] = []

    def hear(problem: Problem, event: Heard) -> None:
        at_each_end(lambda: ended.append(event.name), again.append)(problem, event)

    asked = plan((ONE, ["good_1"]), (TWO, ["good_2"]), stage=stage)
    launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda")
    done = launcher.timings(asked, tmp_path / "00-screen", hear)
    assert {**statuses(done), **statuses(done, TWO)} == {"good_1": "ok", "good_2": "ok"}
    assert done.starts == 3
    (lost,) = again
    assert len(ended) == 2 + lost.count and "nsys" in lost.reason


def test_finals_of_a_size_are_never_had_in_two_starts(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start dies at the second size, and the trace has lost one finalist of the first."""
    monkeypatch.setenv("NSYS_FAULT", "loss at a crash")
    asked = plan((ONE, ["good_1", "good_2"]), (TWO, ["kills_3"]), stage=FINALS)
    folder = tmp_path / "00-finals"
    again: list[Again] = []
    hear = at_each_end(lambda: None, again.append)
    done = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda").timings(asked, folder, hear)
    assert statuses(done) == {"good_1": "ok", "good_2": "ok"} and statuses(done, TWO) == {"kills_3": "crashed"}
    assert [lost.count for lost in again] == [2]
    (left,) = Plan.read(folder / "start01" / "plan.json").work
    assert (left.problem, [name for _, name in left.entries]) == (ONE, ["good_1", "good_2"])


def test_what_cannot_be_kept_is_not_timed_again(here: None, tmp_path: Path) -> None:
    def full(timings: object) -> None:
        raise CannotWrite("No space left on device")

    launcher, folder = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda"), tmp_path / "00-screen"
    with pytest.raises(CannotWrite):
        launcher.timings(plan((ONE, ["good_1", "good_2"])), folder, on_found=full)
    assert [path.name for path in folder.iterdir()] == ["start00"]


def test_halves_part_no_size_in_finals() -> None:
    works = ((ONE, ["a", "b", "c"]), (TWO, ["d"]))
    names = [[[n for _, n in w.entries] for w in half.work] for half in halves(plan(*works))]
    assert names == [[["a", "b"]], [["c"], ["d"]]]
    names = [[[n for _, n in w.entries] for w in half.work] for half in halves(plan(*works, stage=FINALS))]
    assert names == [[["a", "b", "c"]], [["d"]]]
    assert len(halves(plan((ONE, ["a"])))) == len(halves(plan((ONE, ["a", "b"]), stage=FINALS))) == 1


def test_one_that_hangs(nsys: None, hangs: None, tmp_path: Path) -> None:
    launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda", launch_limit_s=LIMIT_S)
    done = launcher.timings(plan((ONE, ["good_1", "hangs_2", "good_3"])), tmp_path / "00-screen")
    assert statuses(done) == {"good_1": "ok", "hangs_2": "timeout", "good_3": "ok"}
    assert done.timings[ONE, "hangs_2"].message == "nothing moved for 1000 s"
    assert done.starts == 2


def test_what_a_start_found_is_told_before_the_next_begins(here: None, tmp_path: Path) -> None:
    heard: list[tuple[list[str], int]] = []
    folder = tmp_path / "00-screen"

    def found(timings: dict[tuple[GemmProblem, str], Timing]) -> None:
        heard.append((sorted(name for _, name in timings), len(list(folder.iterdir()))))

    launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda")
    launcher.timings(plan((ONE, ["good_1", "kills_2", "good_3"])), folder, on_found=found)
    assert heard == [(["good_1", "kills_2"], 1), (["good_3"], 2)]
    assert all((start / ACCOUNTED).exists() for start in folder.iterdir())


def test_a_run_that_winds_down_ends_after_what_is_running(nsys: None, tmp_path: Path) -> None:
    """The stand-in does not look for the stop file; nothing new is started after it."""
    launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda", wind_down=lambda: True)
    done = launcher.timings(plan((ONE, ["good_1", "kills_2", "good_3"])), tmp_path / "00-screen")
    assert statuses(done) == {"good_1": "ok", "kills_2": "crashed"}
    assert (tmp_path / "00-screen" / "start00" / STOP_FILE).exists()


def test_launchers_that_start_side_by_side_use_the_gpu_in_turns(nsys: None, tmp_path: Path) -> None:
    """The second waits while the first is at work, works once that is through, and is ended if the run winds down."""
    asked = threading.Event()
    launcher = LiveLauncher(
        *(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda"), wind_down=asked.is_set, turn=tmp_path / "turn"
    )
    folders = [tmp_path / name for name in ("00-finals", "01-finals", "02-finals")]

    def events(folder: Path) -> list[Event]:
        return read_journal(folder / "start00" / "journal.jsonl")

    def until(so: Callable[[], bool], run: Future[StageRun]) -> None:
        while not so():
            assert not run.done()
            time.sleep(0.01)

    with ThreadPoolExecutor(3) as pool, (tmp_path / "turn").open("w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)  # as a launcher that is at work
        runs = [pool.submit(launcher.timings, plan((ONE, ["good_1"]), stage=FINALS), at) for at in folders[:2]]
        for one, folder in zip(runs, folders, strict=False):
            until((folder / "start00" / WAITING_FILE).exists, one)
            assert not any(isinstance(event, Begin) for event in events(folder))
        fcntl.flock(mine, fcntl.LOCK_UN)
        assert [statuses(one.result(timeout=240)) for one in runs] == [{"good_1": "ok"}] * 2
        fcntl.flock(mine, fcntl.LOCK_EX)
        last = pool.submit(launcher.timings, plan((ONE, ["good_1"]), stage=FINALS), folders[2])
        until((folders[2] / "start00" / WAITING_FILE).exists, last)
        asked.set()
        assert last.result(timeout=240).timings == {}


@pytest.mark.parametrize("winds_down", [False, True])
def test_a_check_waits_for_its_turn_on_the_gpu(winds_down: bool, nsys: None, tmp_path: Path) -> None:
    """As a process of finals does; where the run winds down, it ends without a verdict."""
    asked = threading.Event()
    launcher = LiveLauncher(
        *(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda"), wind_down=asked.is_set, turn=tmp_path / "turn"
    )
    heard: list[str] = []

    def note(_: Problem, event: Heard) -> None:
        heard.append(event.name)

    start = tmp_path / "00-verify" / "start00"
    with ThreadPoolExecutor(1) as pool, (tmp_path / "turn").open("w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)  # as a launcher that is at work
        run = pool.submit(launcher.verdicts, plan((ONE, ["good_1"]), stage=VERIFY), start.parent, note)
        while not (start / WAITING_FILE).exists():
            assert not run.done()
            time.sleep(0.01)
        assert not heard
        if winds_down:
            asked.set()
        else:
            fcntl.flock(mine, fcntl.LOCK_UN)
        run.result(timeout=240)
    assert set(heard) == (set() if winds_down else {"good_1"})


@pytest.mark.parametrize(("stops", "told"), [(True, ["wrong_2", "good_1"]), (False, ["wrong_2", "good_1", "good_3"])])
def test_checks_are_played_back_in_the_order_of_the_ranking(
    stops: bool, told: list[str], here: None, tmp_path: Path
) -> None:
    """Whichever the run made first: some are checked before there is a ranking."""
    launcher, heard = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda"), list[str]()
    for number, names in enumerate((["good_3", "wrong_2"], ["good_1"])):
        made = replace(plan((ONE, names), stage=VERIFY), stop_at_first_right=False)
        launcher.verdicts(made, tmp_path / f"0{number}-verify")
    recording = replay.Recording(tmp_path, Machine((), {}, ""), Nsys(), "", {})

    def note(_: Problem, event: Heard) -> None:
        if isinstance(event, End):
            heard.append(event.name)

    asked = replace(plan((ONE, ["wrong_2", "good_1", "good_3"]), stage=VERIFY), stop_at_first_right=stops)
    replay.ReplayLauncher(recording).verdicts(asked, tmp_path, note)
    assert heard == told


def test_a_vendor_library_that_kills_is_not_called_again(here: None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_VENDOR", "kills")
    monkeypatch.setenv("NSYS_FAULT", "nothing after a crash")
    done = run((ONE, ["good_1"]), vendor=True, stage=FINALS)
    assert statuses(done) == {"good_1": "ok", VENDOR: "crashed"}
    assert done.starts == 2


def test_launchers_that_die_too_often_leave_no_configuration_without_a_status(
    here: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 2)
    done = run((ONE, ["kills_1", "kills_2", "good_3", "good_4"]))
    assert set(statuses(done).values()) == {"crashed"}
    assert set(statuses(done)) == {"kills_1", "kills_2", "good_3", "good_4"}
    assert "not run" in done.timings[ONE, "good_4"].message
    assert done.starts == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("exit 1", ["nsys ended with exit status 1", "No GPU for nsys", "launcher.log", "--profiler"]),
        ("stats fails", ["nsys ended with exit status 1", "the report cannot be opened", "export.log"]),
        ("no file", ["trace_cuda_gpu_trace.csv", "wrote no such file"]),
        ("empty file", ["trace_cuda_gpu_trace.csv", "no kernels recorded"]),
        pytest.param("no kernels", ["trace_cuda_gpu_trace.csv", "no kernels recorded"], marks=pytest.mark.grid),
        ("cut short", ["trace_cuda_gpu_trace.csv, line"]),
        pytest.param("shifted", ["trace_cuda_gpu_trace.csv, line 2"], marks=pytest.mark.grid),
        ("other kernels", ["nsys recorded none of 1 configurations", "the trace has 0 calls of good_1"]),
    ],
)
def test_a_profiler_that_fails_is_one_clear_line(
    here: None, run: Run, monkeypatch: pytest.MonkeyPatch, fault: str, words: list[str]
) -> None:
    monkeypatch.setenv("NSYS_FAULT", fault)
    with pytest.raises(EnvironmentFault) as caught:
        run((ONE, ["good_1", "good_2"]))
    message = caught.value.one_line()
    assert caught.value.exit_status == EXIT_ENVIRONMENT
    assert [word for word in words if word not in message] == []
    assert "\n" not in message


def test_a_failure_after_all_is_done_is_the_profilers(here: None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_END", "exit 1")
    with pytest.raises(EnvironmentFault, match=r"exit status 1.*not happy"):
        run((ONE, ["good_1"]))


def test_half_a_last_line_is_no_event(here: None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything ended and the process died: only the profiler can have failed."""
    monkeypatch.setenv("STAND_IN_END", "half a line")
    with pytest.raises(EnvironmentFault, match="nsys ended with exit status 139"):
        run((ONE, ["good_1"]))


def test_a_script_that_does_not_start(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.sys, "executable", "/bin/false")
    with pytest.raises(EnvironmentFault, match=r"exit status 1: it printed nothing.*--profiler"):
        run((ONE, ["good_1"]))


def verdicts_of(tmp_path: Path, *work: tuple[GemmProblem, list[str]], all_of_them: bool) -> list[tuple[str, str]]:
    heard: list[tuple[str, str]] = []

    def hear(_: Problem, event: Heard) -> None:
        if isinstance(event, (End, Died)):
            heard.append((type(event).__name__.lower(), event.name))

    launcher = InterpreterLauncher(LANGUAGE, tmp_path / "cache", tmp_path)
    launcher.verdicts(plan(*work, stage=VERIFY, stop_at_first_right=not all_of_them), tmp_path / "verify", hear)
    return heard


def test_a_check_stops_at_the_first_right_one(here: None, tmp_path: Path) -> None:
    heard = verdicts_of(tmp_path, (ONE, ["wrong_1", "good_2", "good_3"]), (TWO, ["good_1"]), all_of_them=False)
    assert heard == [("end", "wrong_1"), ("end", "good_2"), ("end", "good_1")]


@pytest.mark.parametrize("first", ["wrong_1", "kills_1"])
def test_a_check_goes_on_behind_the_one_that_killed_it(here: None, tmp_path: Path, first: str) -> None:
    work = ((TWO, ["good_0"]), (ONE, [first, "kills_2", "good_3", "good_4"]), (replace(ONE, m=16), ["good_5"]))
    heard = verdicts_of(tmp_path, *work, all_of_them=False)
    assert heard == [
        ("end", "good_0"),
        ("end" if first == "wrong_1" else "died", first),
        ("died", "kills_2"),
        ("end", "good_3"),
        ("end", "good_5"),
    ]


def test_a_check_that_somebody_kills_goes_on_once(tmp_path: Path, nsys: None) -> None:
    heard = verdicts_of(tmp_path, (ONE, ["good_1", "killed_2", "killed_twice_3", "good_4"]), all_of_them=True)
    assert heard == [("end", "good_1"), ("end", "killed_2"), ("died", "killed_twice_3"), ("end", "good_4")]


def test_a_check_that_dies_too_often_leaves_nothing_unsaid(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "MAX_ATTEMPTS", 1)
    heard = verdicts_of(tmp_path, (ONE, ["kills_1", "good_2"]), all_of_them=True)
    assert heard == [("died", "kills_1"), ("died", "good_2")]


def test_a_check_that_the_deadline_finds_running_is_ended_and_attributed_to_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was checked before is known; what ran, and what comes behind it, is neither right nor dead."""
    monkeypatch.setattr(supervise, "LATE_CHECK_S", 0.0)
    heard: list[tuple[type, str]] = []
    whole = plan((ONE, ["good_1"]), (TWO, ["hangs_2", "good_3"]), stage=VERIFY)

    def hear(_: Problem, event: Heard) -> None:
        heard.append((type(event), event.name))
        if event.name == "hangs_2":
            monkeypatch.setattr(supervise.time, "time", lambda: whole.deadline + 1)

    whole = replace(whole, deadline=time.time() + 3600)
    LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda").verdicts(whole, tmp_path / "verify", hear)
    assert heard == [(Begin, "good_1"), *[(Judged, "good_1")] * 2, (End, "good_1"), (Begin, "hangs_2")]
    assert len(list((tmp_path / "verify").iterdir())) == 1


def test_a_check_of_all_goes_on_too(here: None, tmp_path: Path) -> None:
    heard = verdicts_of(tmp_path, (ONE, ["good_1", "kills_2", "good_3"]), (TWO, ["kills_4"]), all_of_them=True)
    assert heard == [("end", "good_1"), ("died", "kills_2"), ("end", "good_3"), ("died", "kills_4")]


def test_a_check_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.sys, "executable", "/bin/false")
    with pytest.raises(EnvironmentFault, match=r"launcher.log: the check ended with exit status 1: it printed nothing"):
        verdicts_of(tmp_path, (ONE, ["good_1"]), all_of_them=False)


@pytest.mark.parametrize(("limit_s", "alive"), [(900.0, True), (-1.0, False)])
def test_a_finished_launcher_has_a_while_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float, alive: bool
) -> None:
    monkeypatch.setattr(supervise, "REPORT_LIMIT_S", limit_s)
    tail = JournalTail(tmp_path / "journal.jsonl", plan((ONE, ["good_1"])), ignore)
    assert tail.beat() == tail.beat()
    tail.path.write_text('{"event": "finished"}\n{"event": "ha')
    assert (tail.beat() != tail.beat()) == alive


def test_a_profiler_that_never_ends_is_said_to_be_stuck(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Generating report\n")
    message = profiler_failed(Nsys(), Ended(-9, True, 1.0, log)).one_line()
    assert "nsys did not come to an end and was killed: Generating report" in message


@pytest.mark.parametrize(
    ("backend", "gpu", "env", "expected"),
    [
        ("cuda", 1, {}, "1"),
        ("cuda", 0, {"CUDA_VISIBLE_DEVICES": "3"}, "3"),
        ("cuda", 1, {"CUDA_VISIBLE_DEVICES": "GPU-ab12, GPU-cd34"}, "GPU-cd34"),
        ("cuda", 0, {"CUDA_VISIBLE_DEVICES": ""}, "0"),
        ("hip", 1, {"ROCR_VISIBLE_DEVICES": "4,6"}, "6"),
        ("hip", 0, {"HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "4,6"}, "6"),
        ("hip", 1, {"CUDA_VISIBLE_DEVICES": "2,5"}, "5"),
        ("hip", 0, {"HIP_VISIBLE_DEVICES": "7", "CUDA_VISIBLE_DEVICES": "2"}, "7"),
    ],
)
def test_the_gpu_is_the_one_that_torch_numbers(backend: str, gpu: int, env: dict[str, str], expected: str) -> None:
    assert visible_gpu(backend, gpu, env) == expected


def test_the_environment_of_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    env = LiveLauncher(LANGUAGE, Nsys(), tmp_path, tmp_path, "cuda", 1).environment()
    assert (env["CUDA_VISIBLE_DEVICES"], env["TRITON_CACHE_DIR"]) == ("3", str(tmp_path))
    assert "TRITON_INTERPRET" not in env
    env = LiveLauncher(LANGUAGE, Nsys(), tmp_path, tmp_path, "hip", 1).environment()
    assert env["ROCR_VISIBLE_DEVICES"] == "3"
    assert not {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & set(env)


def test_a_plan_runs_where_its_scripts_have_been_moved_to(tmp_path: Path) -> None:
    """It names two of them and no folder: the launcher finds them beside the one that is started."""
    made, moved = tmp_path / "made", tmp_path / "moved"
    made.mkdir()
    families = [config(family=family, BLOCK_SIZE_M=64, BLOCK_SIZE_N=64) for family in ("gemm_tile", "gemm_persistent")]
    target = device("sm_80").target
    scripts = [codegen.write_script(ROOT / "templates", made, one.family, TWO, [one], target) for one in families]
    work = Work(TWO, tuple((index, one.name) for index, one in enumerate(families)))
    names, method = tuple(script.file for script in scripts), Method()
    Plan(VERIFY, names, (work,), method, device="cpu", stop_at_first_right=False).write(tmp_path / "plan.json")
    made.rename(moved)
    command = [sys.executable, str(moved / names[0]), "--plan", str(tmp_path / "plan.json")]
    env = launcher_env(LANGUAGE, tmp_path / "cache", {"TRITON_INTERPRET": "1"})
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events = read_journal(tmp_path / "journal.jsonl", 1)
    assert {event.name for event in events if isinstance(event, Judged) and event.ok} == {one.name for one in families}


def test_a_launcher_that_cannot_write_its_journal_is_attributed_to_none(tmp_path: Path) -> None:
    """The launcher itself, on a disk that is full from the first event on."""
    script = codegen.write_script(ROOT / "templates", tmp_path, "gemm_tile", ONE, [config()], device("sm_90").target)
    work = Work(ONE, ((0, config().name),))
    plan = tmp_path / "plan.json"
    Plan(VERIFY, (script.file,), (work,), Method(), device="cpu").write(plan)
    command = [sys.executable, str(tmp_path / script.file), "--plan", str(plan), "--journal", "/dev/full"]
    done = subprocess.run(command, capture_output=True, text=True, env=launcher_env(LANGUAGE, tmp_path, {}))
    assert done.returncode == EXIT_CANNOT_WRITE, done.stderr
    (tmp_path / "log").write_text(done.stderr)
    with pytest.raises(EnvironmentFault, match=r"could not write.*No space left on device.*free some space"):
        supervise.require_journal(Ended(done.returncode, False, 1.0, tmp_path / "log"))


def test_in_the_rounds_of_finals_nobody_runs_alone() -> None:
    journal: list[Event] = [Begin(0, name) for name in ("a", "b")]
    assert at_end(journal) == (0, "b")
    journal.append(Round(0, 0))
    assert at_end(journal) == (0, "")
    journal.append(End(0, "a"))
    assert at_end(journal) is None


def entries_of(folder: Path) -> list[list[str]]:
    plans = [Plan.read(path) for path in sorted(folder.glob("start*/plan.json"))]
    return [[name for work in one.work for _, name in work.entries] for one in plans]


def test_who_kills_the_rounds_of_finals_is_found_and_the_others_run_again_together(
    here: None, run: Run, tmp_path: Path
) -> None:
    names = ["good_1", "late_2", "good_3", "good_4"]
    done = run((ONE, names), (TWO, ["good_1"]), stage=FINALS, vendor=True)
    ok = dict.fromkeys(("good_1", "good_3", "good_4", VENDOR), "ok")
    assert statuses(done) == {**ok, "late_2": "crashed"} and statuses(done, TWO) == {"good_1": "ok", VENDOR: "ok"}
    last, *probed = ["good_1", "good_3", "good_4", "good_1"], names[:2], ["good_1"], ["late_2"], names[2:]
    assert entries_of(tmp_path / "00-screen") == [[*names, "good_1"], *probed, last]
    assert {timing.samples_us for (size, name), timing in done.timings.items() if name == "good_4"} == {(31.0, 32.0)}
    marked = [(tmp_path / "00-screen" / f"start{n:02d}" / PROBE).exists() for n in range(6)]
    assert marked == [False, True, True, True, True, False]


@pytest.mark.parametrize("vendor", [True, pytest.param(False, marks=pytest.mark.grid)])
def test_finals_that_die_together_only_cost_the_vendor_library_and_then_all(
    vendor: bool, here: None, run: Run, tmp_path: Path
) -> None:
    done = run((ONE, ["shy_1", "good_2"]), stage=FINALS, vendor=vendor)
    assert statuses(done) == dict.fromkeys(("shy_1", "good_2", *[VENDOR] * vendor), "crashed")
    both = ["shy_1", "good_2"]
    assert entries_of(tmp_path / "00-screen") == [both, ["shy_1"], ["good_2"], both, *[both] * vendor]
    alone = run_alone(tmp_path, vendor=vendor)
    assert alone == ({"shy_1": "ok", VENDOR: "crashed"} if vendor else {"shy_1": "ok"})


def run_alone(folder: Path, *, vendor: bool) -> dict[str, str]:
    launcher = LiveLauncher(LANGUAGE, Nsys(), folder / "cache", folder, "cuda")
    return statuses(launcher.timings(plan((ONE, ["shy_1"]), stage=FINALS, vendor=vendor), folder / "alone"))


def test_rounds_that_somebody_kills_run_again_once(here: None, run: Run, tmp_path: Path) -> None:
    done = run((ONE, ["good_1", "shot_2"]), stage=FINALS)
    assert statuses(done) == {"good_1": "ok", "shot_2": "ok"}
    assert entries_of(tmp_path / "00-screen") == [["good_1", "shot_2"]] * 2


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_check_uses_the_process_that_was_started_before_it(
    tmp_path: Path, is_alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the user is: a file there may have the name of a module."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "queue.py").write_text("raise SystemExit('this is mine')\n")
    monkeypatch.chdir(tmp_path / "mine")
    size, one, target = problem(16, 16, 16), config(), device("sm_90").target
    scripts = compile_tasks.write_scripts(TEMPLATES, tmp_path, [(size, one)], target)
    (script,) = scripts.values()
    launcher, heard = InterpreterLauncher(LANGUAGE, tmp_path / "cache", tmp_path), list[bool]()

    def hear(_: Problem, event: Heard) -> None:
        if isinstance(event, Judged):
            heard.append(event.ok)

    launcher.prepare()
    waiting = launcher._ahead._waiting[0].process
    if not is_alive:
        waiting.kill()
    work = Work(size, ((0, one.name),))
    launcher.verdicts(Plan(VERIFY, (script.file,), (work,), Method()), tmp_path / "verify", hear)
    assert heard and all(heard) and not waiting.alive and not launcher._ahead._waiting
    (process,) = (e for e in read_journal(tmp_path / "verify/start00/journal.jsonl") if isinstance(e, Process))
    assert (pid_of(process.identity) == waiting._process.pid) == is_alive
    launcher.prepare()
    waiting = launcher._ahead._waiting[0].process
    launcher.close()
    assert not waiting.alive
