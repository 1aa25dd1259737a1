"""Finals in launcher processes: rounds that die, who killed them, and what runs again."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from launcher_runs import ONE, TWO, Run, entries_of, plan, statuses

from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.journal import Begin, End, Event, Round, read_journal
from gemm_tuner.launch.plan import FINALS, VENDOR, Plan
from gemm_tuner.launch.turn import WAITING_FILE
from gemm_tuner.measure.launcher_events import Again, at_each_end
from gemm_tuner.measure.launcher_process import LiveLauncher
from gemm_tuner.measure.parse_run import at_end, halves
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.measure.supervise import PROBE
from gemm_tuner.profilers.nsys import Nsys


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


def test_halves_part_no_size_in_finals() -> None:
    works = ((ONE, ["a", "b", "c"]), (TWO, ["d"]))
    names = [[[n for _, n in w.entries] for w in half.work] for half in halves(plan(*works))]
    assert names == [[["a", "b"]], [["c"], ["d"]]]
    names = [[[n for _, n in w.entries] for w in half.work] for half in halves(plan(*works, stage=FINALS))]
    assert names == [[["a", "b", "c"]], [["d"]]]
    assert len(halves(plan((ONE, ["a"])))) == len(halves(plan((ONE, ["a", "b"]), stage=FINALS))) == 1


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


def test_a_vendor_library_that_kills_is_not_called_again(here: None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_VENDOR", "kills")
    monkeypatch.setenv("NSYS_FAULT", "nothing after a crash")
    done = run((ONE, ["good_1"]), vendor=True, stage=FINALS)
    assert statuses(done) == {"good_1": "ok", VENDOR: "crashed"}
    assert done.starts == 2


def test_in_the_rounds_of_finals_nobody_runs_alone() -> None:
    journal: list[Event] = [Begin(0, name) for name in ("a", "b")]
    assert at_end(journal) == (0, "b")
    journal.append(Round(0, 0))
    assert at_end(journal) == (0, "")
    journal.append(End(0, "a"))
    assert at_end(journal) is None


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
