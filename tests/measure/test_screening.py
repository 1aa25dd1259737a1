"""Screening in a process that stays alive: stand-ins take the place of the launcher in it and of nsys."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hang_clock import LIMIT_S, NOTES, HangClock
from nsys_on_path import nsys_on_path
from process_samples import ends
from samples import ROOT, problem

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.journal import Process, read_journal
from gemm_tuner.launch.plan import FINALS, SCREEN, STOP_FILE, Method, Plan, Work
from gemm_tuner.measure import replay, screening
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.launcher_process import LiveLauncher
from gemm_tuner.measure.openings import Openings
from gemm_tuner.measure.screening import Resident, StagedLauncher
from gemm_tuner.measure.torch_ahead import TorchAhead
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.profilers.proton import Proton
from gemm_tuner.system import processes
from gemm_tuner.system.processes import pid_of

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
HELPERS = ROOT / "tests" / "helpers"
Opened = Callable[..., StagedLauncher]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> Iterator[Opened]:
    monkeypatch.setenv("STAND_IN_NOTES", str(nsys_on_path(tmp_path, monkeypatch)))
    monkeypatch.setenv("PYTHONPATH", str(HELPERS), prepend=os.pathsep)
    made: list[StagedLauncher] = []

    def opened(
        *,
        wind_down: Callable[[], bool] = lambda: False,
        limit_s: float = LIMIT_S,
        torch_ahead: TorchAhead | None = None,
    ) -> StagedLauncher:
        of = LANGUAGE, Nsys(), tmp_path / "cache", tmp_path, "cuda"
        live = LiveLauncher(*of, wind_down=wind_down, launch_limit_s=limit_s)
        script = HELPERS / "resident_stand_in.py"
        resident = Resident(live, tmp_path / "resident.log", script=script, torch_ahead=torch_ahead)
        made.append(StagedLauncher(resident, live, said.append, fallback=live))
        return made[-1]

    yield opened
    for launcher in made:
        launcher.close()


def plan(*work: tuple[GemmProblem, list[str]], stage: str = SCREEN) -> Plan:
    works = tuple(Work(size, tuple((0, name) for name in names)) for size, names in work)
    return Plan(stage, (str(HELPERS / "launcher_stand_in.py"),), works, Method(timed_calls=2))


def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def statuses(timings: dict[tuple[GemmProblem, str], Timing]) -> dict[str, str]:
    return {name: timing.status.value for (_, name), timing in timings.items()}


def pids(folder: Path) -> list[int]:
    """Of the process that worked on each start of a stage."""
    journals = sorted(folder.glob("start*/journal.jsonl"))
    return [pid_of(e.identity) for path in journals for e in read_journal(path) if isinstance(e, Process)]


def test_rounds_share_a_process_which_makes_room_for_the_finals(opened: Opened, tmp_path: Path) -> None:
    launcher = opened()
    launcher.prepare()
    first = launcher.timings(plan((ONE, ["good_1", "split_2", "slow_3"]), (TWO, ["good_1"])), tmp_path / "00-screen")
    launcher.timings(plan((ONE, ["good_4"])), tmp_path / "01-screen")
    assert launcher.stays and statuses(first.timings) == {"good_1": "ok", "split_2": "ok", "slow_3": "early_stopped"}
    assert first.timings[ONE, "split_2"].samples_us == (42.0, 44.0)
    (pid,) = set(pids(tmp_path / "00-screen") + pids(tmp_path / "01-screen"))
    done = launcher.timings(plan((ONE, ["good_1"]), stage=FINALS), tmp_path / "02-finals")
    assert ends(pid)
    assert statuses(done.timings) == {"good_1": "ok"} and (tmp_path / "02-finals/start00/kernels.txt").exists()


def test_the_process_opens_the_gpu_before_its_first_plan(opened: Opened, tmp_path: Path) -> None:
    """Once; another that takes its place, where it crashed, opens it with its plan."""
    launcher = opened()
    assert launcher.open_ahead([plan((ONE, []))], 1) == Openings(0, 0)  # there is none yet
    launcher.prepare()
    assert launcher.open_ahead([plan((ONE, []))], 0) == Openings(0, 1)
    launcher.open_ahead([plan((ONE, []))], 1)
    until(lambda: launcher.open_ahead([plan((ONE, []))], 1) == Openings(0, 0))
    assert (tmp_path / "resident.opening.opened").exists()
    done = launcher.timings(plan((ONE, ["good_1", "kills_2", "good_3"])), tmp_path / "00-screen")
    assert statuses(done.timings) == {"good_1": "ok", "kills_2": "crashed", "good_3": "ok"}


def test_launchers_of_finals_are_told_how_many_of_them_open_the_gpu(opened: Opened, tmp_path: Path) -> None:
    asked: list[tuple[int, int | None]] = []

    class Finals(LiveLauncher):
        def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
            asked.append((at_once, most))
            return Openings(1, 0)

    class Opening(Resident):
        def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
            return Openings(len([one for one in plans if one.stage == SCREEN]), len(plans) - 1)

    launcher, plans = opened(), [plan((ONE, [])), plan((ONE, []), stage=FINALS)]
    launcher.finals = Finals(**{one.name: getattr(launcher.finals, one.name) for one in fields(LiveLauncher)})
    assert launcher.open_ahead(plans, 2, 5) == Openings(1, 0)
    launcher.screening = Opening(launcher.finals, tmp_path / "resident.log")  # which is one of those at once
    assert launcher.open_ahead(plans, 2, 5) == Openings(2, 0)
    assert asked == [(2, 5), (1, 5)]


def test_one_that_dies_while_it_opens_the_gpu_is_waited_for_no_longer(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, plans = opened(), [plan((ONE, []))]
    with monkeypatch.context() as patched:
        patched.setenv("STAND_IN_RESIDENT", "broken")
        launcher.prepare()
    assert launcher.open_ahead(plans, 1).left == 0
    until(lambda: launcher.open_ahead(plans, 1) == Openings(0, 0))
    launcher.prepare()
    assert launcher.open_ahead(plans, 1) == Openings(0, 0)
    done = launcher.timings(plan((ONE, ["good_1"])), tmp_path / "00-screen")
    assert statuses(done.timings) == {"good_1": "ok"}


def test_the_process_that_has_imported_torch_is_the_first_to_screen(opened: Opened, tmp_path: Path) -> None:
    """What follows it, where it crashed or made room for finals, is started as ever."""
    ahead = TorchAhead.begin()
    launcher = opened(torch_ahead=ahead)
    first = launcher.timings(plan((ONE, ["good_1", "kills_2", "good_3"])), tmp_path / "00-screen")
    assert statuses(first.timings) == {"good_1": "ok", "kills_2": "crashed", "good_3": "ok"}
    one, two, *_ = pids(tmp_path / "00-screen")
    assert ahead.become([], {}, tmp_path / "none") is None
    assert ends(one) and one != two
    log = tmp_path / "00-screen/start00/launcher.log"
    assert log.exists() and not (tmp_path / "none").exists()


@pytest.mark.parametrize("how", ["raise SystemExit(1)", "os.kill(os.getpid(), 9)"])
def test_where_it_dies_while_it_imports_another_process_takes_its_place(
    how: str, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a file here, so that it is asked to become the launcher before it dies."""
    asked = tmp_path / "asked"
    (tmp_path / "fake").mkdir()
    waits = f"import os, time\nwhile not os.path.exists({str(asked)!r}):\n    time.sleep(0.01)\n{how}\n"
    (tmp_path / "fake" / "torch.py").write_text(waits)
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(tmp_path / "fake"), prepend=os.pathsep)
        ahead = TorchAhead.begin()
    launcher = opened(torch_ahead=ahead)
    launcher.prepare()
    asked.touch()
    done = launcher.timings(plan((ONE, ["good_1", "good_3"])), tmp_path / "00-screen")
    assert statuses(done.timings) == {"good_1": "ok", "good_3": "ok"}


def test_a_file_of_the_user_takes_the_place_of_no_module(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')")
    monkeypatch.chdir(tmp_path)
    done = opened().timings(plan((ONE, ["good_1"])), tmp_path / "00-screen")
    assert statuses(done.timings) == {"good_1": "ok"}


def test_a_configuration_that_kills_or_hangs_costs_itself(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTES, str(tmp_path / "hangs"))
    monkeypatch.setattr(processes, "time", HangClock(tmp_path / "hangs"))
    launcher = opened(limit_s=LIMIT_S)
    work = (ONE, ["good_1", "kills_2", "good_3", "fails_4", "hangs_5", "good_6", "killed_7"])
    found = statuses(launcher.timings(plan(work), tmp_path / "00-screen").timings)
    assert found == {
        **dict.fromkeys(("good_1", "good_3", "good_6", "killed_7"), "ok"),
        **{"kills_2": "crashed", "fails_4": "launch_error", "hangs_5": "timeout"},
    }


def test_after_a_crash_another_process_serves_the_rounds_that_follow(opened: Opened, tmp_path: Path) -> None:
    """Whichever thread asked for it: the operating system ends a process with the thread that started it."""
    launcher = opened()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(launcher.timings, plan((ONE, ["good_1", "kills_2", "good_3"])), tmp_path / "00-screen").result()
    launcher.timings(plan((ONE, ["good_4"])), tmp_path / "01-screen")
    assert pids(tmp_path / "00-screen")[-1] == pids(tmp_path / "01-screen")[0]


def test_what_a_process_printed_before_is_not_said_of_a_later_crash(opened: Opened, tmp_path: Path) -> None:
    launcher = opened()
    launcher.timings(plan((ONE, ["prints_1"])), tmp_path / "00-screen")
    done = launcher.timings(plan((ONE, ["kills_2"])), tmp_path / "01-screen")
    assert "printed" in (tmp_path / "00-screen/start00/launcher.log").read_text()
    assert "printed" not in done.timings[ONE, "kills_2"].message


def test_a_crash_in_a_kept_run_is_played_back(opened: Opened, tmp_path: Path) -> None:
    """A process that crashes leaves no trace of its session."""
    work = plan((ONE, ["good_1", "kills_2", "good_3"]))
    opened().timings(work, tmp_path / "00-screen")
    machine = Machine((), {}, "")
    recording = replay.Recording(tmp_path, machine, Nsys(), "", {}, screener=Proton())
    found = statuses(replay.ReplayLauncher(recording).timings(work, tmp_path).timings)
    assert (found["good_1"], found["good_3"]) == ("ok", "ok") and found["kills_2"] != "ok"


def test_a_crash_loses_the_times_of_few(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its own session only: what earlier sessions found is not timed again."""
    monkeypatch.setattr(screening, "ABOUT_ENTRIES", 2)
    heard: list[list[str]] = []
    launcher, names = opened(), ["good_1", "good_2", "good_3", "kills_4", "good_5"]
    done = launcher.timings(
        plan((ONE, names)), tmp_path / "00-screen", on_found=lambda found: heard.append([name for _, name in found])
    )
    assert heard[:2] == [["good_1", "good_2"], ["kills_4"]] and set(statuses(done.timings)) == set(names)
    best = [Plan.read(path).work[0].best_us for path in sorted((tmp_path / "00-screen").glob("start*/plan.json"))]
    assert best[0] == 0.0 and best[-1] == 11.5


def test_no_session_begins_for_the_few_that_are_left(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside its calls a session takes 0.3 s, a configuration 6 ms (H200)."""
    monkeypatch.setattr(screening, "ABOUT_ENTRIES", 4)
    launcher = opened()
    for count, sessions in ((1, [1]), (5, [5]), (7, [3, 4])):
        folder, names = tmp_path / f"{count:02d}-screen", [f"good_{number}" for number in range(count)]
        assert set(statuses(launcher.timings(plan((ONE, names)), folder).timings)) == set(names)
        plans = [Plan.read(path) for path in sorted(folder.glob("start*/plan.json"))]
        assert [len(one.work[0].entries) for one in plans] == sessions


def test_a_run_that_winds_down_ends_after_what_is_running(opened: Opened, tmp_path: Path) -> None:
    launcher = opened(wind_down=lambda: True)
    done = launcher.timings(plan((ONE, ["good_1", "kills_2", "good_3"])), tmp_path / "00-screen")
    assert statuses(done.timings) == {"kills_2": "crashed"}
    assert (tmp_path / "00-screen" / "start00" / STOP_FILE).exists()


def test_where_it_does_not_work_screening_goes_on_under_the_profiler_of_the_finals(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("STAND_IN_RESIDENT", "broken")
    launcher = opened()
    for number in range(2):
        done = launcher.timings(plan((ONE, ["good_1", "good_2"])), tmp_path / f"0{number}-screen")
        assert statuses(done.timings) == {"good_1": "ok", "good_2": "ok"}
    (line,) = said
    assert "nsys" in line and "CUPTI is not to be had" in line
    assert not launcher.stays
    recording = replay.Recording(tmp_path, Machine((), {}, ""), Nsys(), "", {}, screener=Proton())
    replayed = replay.ReplayLauncher(recording).timings(plan((ONE, ["good_1", "good_2"])), tmp_path)
    assert statuses(replayed.timings) == {"good_1": "ok", "good_2": "ok"}


def test_what_a_process_says_before_its_first_plan_is_not_lost(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    log = tmp_path / "resident.log"
    log.write_text("of an earlier run\n")
    monkeypatch.setenv("STAND_IN_RESIDENT", "said before")
    launcher = opened()
    launcher.prepare()
    deadline = time.monotonic() + 300
    while "too old" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    launcher.timings(plan((ONE, ["good_1"])), tmp_path / "00-screen")
    first = (tmp_path / "00-screen/start00/launcher.log").read_text()
    assert first.splitlines() == ["the driver is too old"]
    (line,) = said
    assert "the driver is too old" in line


def test_a_profiler_that_was_asked_for_screening_is_not_replaced(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("STAND_IN_RESIDENT", "broken")
    launcher = replace(opened(), fallback=None)
    with pytest.raises(EnvironmentFault, match="CUPTI is not to be had"):
        launcher.timings(plan((ONE, ["good_1"])), tmp_path / "00-screen")
    assert not said
