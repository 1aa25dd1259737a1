"""Launcher processes that work, die, hang and lie, under an nsys that does; stand-ins take the place of both."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hang_clock import LIMIT_S, NOTES, HangClock
from launcher_runs import ONE, TWO, Run, entries_of, plan, statuses
from process_samples import ends

from gemm_tuner.core.errors import CannotWrite
from gemm_tuner.core.records import Problem, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.journal import Begin, End, Fail
from gemm_tuner.launch.plan import FINALS, SCREEN, STOP_FILE, VENDOR, Plan
from gemm_tuner.measure import retry
from gemm_tuner.measure.launcher_events import Again, Heard, at_each_end
from gemm_tuner.measure.launcher_process import LiveLauncher
from gemm_tuner.measure.retry import time_plan
from gemm_tuner.measure.supervise import ACCOUNTED
from gemm_tuner.profilers import NotRecorded
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.system import processes
from gemm_tuner.system.processes import Ended


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of what hangs is over at once."""
    monkeypatch.setenv(NOTES, str(tmp_path / "hangs"))
    monkeypatch.setattr(processes, "time", HangClock(tmp_path / "hangs"))


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


@pytest.mark.parametrize(
    ("fault", "said"),
    [("no recording", "nothing was written"), ("no kernels", "no kernels"), ("other kernels", "recorded none of 2")],
)
def test_what_a_profiler_did_not_record_is_timed_again_in_one_start(
    fault: str, said: str, here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not for its length."""
    monkeypatch.setenv("NSYS_FAULT", f"{fault} at first")
    again: list[Again] = []
    asked = plan((ONE, ["good_1"]), (TWO, ["good_2"]))
    launcher = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda")
    done = launcher.timings(asked, tmp_path / "00-screen", at_each_end(lambda: None, again.append))
    assert {**statuses(done), **statuses(done, TWO)} == {"good_1": "ok", "good_2": "ok"} and done.starts == 2
    (lost,) = again
    assert lost.count == 2 and said in lost.reason


def test_what_a_profiler_does_not_record_twice_is_timed_in_parts(here: None, tmp_path: Path) -> None:
    sizes: list[int] = []

    def start(part: Plan, where: Path) -> Ended:
        sizes.append(sum(len(work.entries) for work in part.work))
        raise NotRecorded("no recording")

    asked = plan((ONE, ["good_1", "good_2"]), (TWO, ["good_3", "good_4"]))
    with pytest.raises(NotRecorded):
        time_plan(asked, Nsys(), start, tmp_path / "00-screen", lambda timings: None, lambda: False)
    assert sizes == [4, 4, 2]


def test_what_cannot_be_kept_is_not_timed_again(here: None, tmp_path: Path) -> None:
    def full(timings: object) -> None:
        raise CannotWrite("No space left on device")

    launcher, folder = LiveLauncher(LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda"), tmp_path / "00-screen"
    with pytest.raises(CannotWrite):
        launcher.timings(plan((ONE, ["good_1", "good_2"])), folder, on_found=full)
    assert [path.name for path in folder.iterdir()] == ["start00"]


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


def test_launchers_that_die_too_often_leave_no_configuration_without_a_status(
    here: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 2)
    done = run((ONE, ["kills_1", "kills_2", "good_3", "good_4"]))
    assert set(statuses(done).values()) == {"crashed"}
    assert set(statuses(done)) == {"kills_1", "kills_2", "good_3", "good_4"}
    assert "not run" in done.timings[ONE, "good_4"].message
    assert done.starts == 2
