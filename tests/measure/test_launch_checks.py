"""Checks in processes of their own: where they stop, go on and wait; stand-ins take the place of launchers."""

from __future__ import annotations

import fcntl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from launcher_runs import ONE, TWO, plan
from samples import TEMPLATES, config, device, problem

from gemm_tuner.compile import compile_tasks
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Problem
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.journal import Begin, End, Judged, Process, read_journal
from gemm_tuner.launch.plan import VERIFY, Method, Plan, Work
from gemm_tuner.launch.turn import WAITING_FILE
from gemm_tuner.measure import launcher_process as launch
from gemm_tuner.measure import replay, supervise
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.launcher_events import Died, Heard
from gemm_tuner.measure.launcher_process import InterpreterLauncher, LiveLauncher
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.system.processes import pid_of


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
