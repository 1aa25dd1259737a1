"""Launchers of one GPU take turns on it, also those that give way and go on later."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from turn_launchers import Launcher, Start, done, is_locked
from waits import wait_until

from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.journal import ADMITTED, IMPORTED, LAUNCHED, OPENED, READY, TURN, Journal
from gemm_tuner.launch.main import run
from gemm_tuner.launch.opening import opened
from gemm_tuner.launch.plan import AHEAD, ANYWHERE, BEHIND, FINALS, STOP_FILE, Method, Plan
from gemm_tuner.launch.processor import Cpu
from gemm_tuner.launch.turn import WAITING_FILE, Turn
from gemm_tuner.system.installation import IMPORT_ROOT


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Launcher] = []

    def start(name: str, first: str = "take") -> Launcher:
        started.append(Launcher(tmp_path, name))
        started[-1].tell(first)
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_one_that_gives_way_goes_on_after_the_one_that_waits(start: Start, tmp_path: Path) -> None:
    check = start("check")
    wait_until(lambda: done(tmp_path) == ["check begins"])
    finals = start("finals")
    wait_until(lambda: finals.waits() and is_locked(tmp_path / "turn.queue"))
    check.tell("give way")
    wait_until(lambda: "finals begins" in done(tmp_path))
    wait_until(check.waits)
    assert "check goes on" not in done(tmp_path)
    finals.tell("end")
    finals.through()
    wait_until(lambda: "check goes on" in done(tmp_path))
    check.tell("end")
    check.through()
    assert done(tmp_path) == [
        "check begins", "check gives way", "finals begins", "finals ends", "check goes on", "check ends",
    ]  # fmt: skip


def test_where_nobody_waits_it_goes_on_at_once(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "turn", tmp_path)
    turn.take()
    turn.give_way()
    assert not (tmp_path / WAITING_FILE).exists()
    turn.end()
    Turn(tmp_path / "turn", tmp_path).take()


def test_one_that_stays_behind_has_its_turn_after_all_that_go_ahead(start: Start, tmp_path: Path) -> None:
    first, second = start("first", "go ahead"), start("second", "go ahead")
    wait_until(lambda: len(done(tmp_path)) == 2)
    behind = start("behind", "stay behind")
    wait_until(behind.waits)
    first.tell("take")
    wait_until(lambda: "first begins" in done(tmp_path))
    second.process.kill()
    wait_until(lambda: "behind may take" in done(tmp_path))
    behind.tell("take")
    wait_until(lambda: behind.waits() and is_locked(tmp_path / "turn.queue"))
    first.tell("end")
    wait_until(lambda: "behind begins" in done(tmp_path))


@pytest.mark.parametrize(("place", "behind"), [(AHEAD, False), (BEHIND, True), (ANYWHERE, False)])
def test_a_launcher_waits_for_those_ahead_if_its_plan_says_so(
    start: Start, tmp_path: Path, place: str, behind: bool
) -> None:
    ahead = start("ahead", "go ahead")
    wait_until(lambda: bool(done(tmp_path)))
    written, turn = io.StringIO(), Turn(tmp_path / "turn", tmp_path)
    script, language = ModuleType("script"), SimpleNamespace(support_calls=lambda flush_bytes, device: {})
    plan = Plan(FINALS, (), (), Method(), device="cpu", place=place)
    arguments = plan, Journal(written), [script], tmp_path / STOP_FILE, language, None, turn
    opens = threading.Thread(target=run, args=arguments, daemon=True)
    opens.start()
    if behind:
        wait_until(lambda: OPENED in written.getvalue() and (tmp_path / WAITING_FILE).exists())
        assert TURN not in written.getvalue()
        ahead.process.kill()
    opens.join(timeout=60)
    assert TURN in written.getvalue()


def test_a_launcher_goes_ahead_from_when_it_opens_the_gpu_until_its_turn(tmp_path: Path) -> None:
    turn, bench, goes_ahead = Turn(tmp_path / "turn", tmp_path), object(), list[bool]()
    ahead = tmp_path / "turn.ahead"
    loading: Any = SimpleNamespace(load=lambda last: None, done=True)

    def make() -> Any:
        goes_ahead.append(is_locked(ahead))
        return bench

    assert opened(make, loading, Journal(io.StringIO()), turn, AHEAD) is bench
    assert goes_ahead == [True] and not is_locked(ahead)
    turn.end()


def test_launchers_open_the_gpu_side_by_side_and_before_their_turn(start: Start, tmp_path: Path) -> None:
    holder = start("holder")
    wait_until(lambda: done(tmp_path) == ["holder begins"])
    first, second = start("first", "open"), start("second", "open")
    wait_until(lambda: len(done(tmp_path)) == 3)
    assert set(done(tmp_path)) == {"holder begins", "first opens", "second opens"}
    holder.tell("time")
    wait_until(holder.waits)
    first.tell("opened")
    wait_until(lambda: "first has opened" in done(tmp_path))
    assert "holder times" not in done(tmp_path)
    second.tell("opened")
    wait_until(lambda: "holder times" in done(tmp_path))


def test_nobody_opens_the_gpu_while_another_times(start: Start, tmp_path: Path) -> None:
    holder = start("holder")
    holder.tell("time")
    wait_until(lambda: "holder times" in done(tmp_path))
    other = start("other", "open")
    wait_until(other.waits)
    assert "other opens" not in done(tmp_path)
    holder.tell("end")
    wait_until(lambda: "other opens" in done(tmp_path))
    assert done(tmp_path)[-2:] == ["holder ends", "other opens"]


def test_one_that_dies_while_it_opens_the_gpu_holds_up_nobody(start: Start, tmp_path: Path) -> None:
    holder, other = start("holder"), start("other", "open")
    wait_until(lambda: len(done(tmp_path)) == 2)
    holder.tell("time")
    wait_until(holder.waits)
    other.process.kill()
    wait_until(lambda: "holder times" in done(tmp_path))


def test_a_launcher_that_dies_while_it_waits_holds_up_nobody(start: Start, tmp_path: Path) -> None:
    check, first, second = start("check"), start("first"), start("second")
    wait_until(lambda: bool(done(tmp_path)))
    holder = next(one for one in (check, first, second) if done(tmp_path)[0] == f"{one.folder.name} begins")
    others = [one for one in (check, first, second) if one is not holder]
    for other in others:
        wait_until(other.waits)
    others[0].process.kill()
    others[0].process.wait()
    holder.tell("end")
    wait_until(lambda: f"{others[1].folder.name} begins" in done(tmp_path))


def test_a_launcher_opens_the_gpu_before_its_turn_and_times_while_none_opens_it(tmp_path: Path) -> None:
    def reached() -> list[str]:
        journal = tmp_path / "journal.jsonl"
        rows = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        return [row["milestone"] for row in rows if row["event"] == "reached"]

    Plan(FINALS, (), (), Method(), device="cpu").write(tmp_path / "plan.json")
    (tmp_path / "others").mkdir()
    holder, timing = (Turn(tmp_path / "turn", tmp_path / "others") for _ in range(2))
    holder.take()
    timing.begin_timing()
    command = ["-m", "gemm_tuner.launch.main", "--plan", str(tmp_path / "plan.json"), "--turn", str(tmp_path / "turn")]
    with subprocess.Popen([sys.executable, *command], cwd=IMPORT_ROOT) as process:
        try:
            wait_until((tmp_path / WAITING_FILE).exists)
            assert reached() == [IMPORTED]
            timing.end()
            wait_until(lambda: OPENED in reached())
            wait_until((tmp_path / WAITING_FILE).exists)
            assert reached() == [IMPORTED, ADMITTED, OPENED]
            with timing.opening():
                holder.end()
                wait_until(lambda: TURN in reached())
                wait_until((tmp_path / WAITING_FILE).exists)
                assert reached() == [IMPORTED, ADMITTED, OPENED, TURN]
            assert process.wait(240) == 0
        finally:
            process.kill()
    assert reached() == [IMPORTED, ADMITTED, OPENED, TURN, READY, LAUNCHED]


@pytest.mark.parametrize(("text", "is_made"), [("CUDA out of memory", True), ("no kernel image", False)])
def test_what_does_not_fit_beside_others_is_opened_in_the_turn(text: str, is_made: bool, tmp_path: Path) -> None:
    written, loaded = io.StringIO(), list[bool]()
    bench: Any = object()
    loading: Any = SimpleNamespace(load=lambda last: loaded.append(last and has_turn()), done=False, processor=Cpu())

    def has_turn() -> bool:
        return TURN in written.getvalue()

    def make() -> Bench:
        if not has_turn():
            raise RuntimeError(text)
        return bench

    turn = Turn(tmp_path / "turn", tmp_path)
    if is_made:
        assert opened(make, loading, Journal(written), turn) is bench
    else:
        with pytest.raises(RuntimeError, match=text):
            opened(make, loading, Journal(written), turn)
    assert loaded == [True] * is_made
    turn.end()
    with Turn(tmp_path / "turn", tmp_path).opening():
        assert not (tmp_path / WAITING_FILE).exists()


def test_kernels_are_loaded_before_the_turn_and_again_in_it(tmp_path: Path) -> None:
    """Where all did fit, there is nothing left to load again."""
    written, loaded = io.StringIO(), list[tuple[bool, bool, bool]]()
    bench: Any = object()
    turn = Turn(tmp_path / "turn", tmp_path)

    def load(*, last: bool) -> None:
        loaded.append((last, TURN in written.getvalue(), not is_locked(tmp_path / "turn.quiet")))

    loading: Any = SimpleNamespace(load=load, done=False)
    assert opened(lambda: bench, loading, Journal(written), turn) is bench
    assert loaded == [(False, False, False), (True, True, False)]
    turn.end()


def test_what_a_launcher_does_meanwhile_comes_before_its_turn(tmp_path: Path) -> None:
    """When its GPU is open, and others may be timing."""
    written, seen = io.StringIO(), list[tuple[bool, bool, bool]]()
    loading: Any = SimpleNamespace(load=lambda last: None, done=True)
    turn = Turn(tmp_path / "turn", tmp_path)

    def meanwhile() -> None:
        reached = written.getvalue()
        seen.append((OPENED in reached, TURN in reached, is_locked(tmp_path / "turn.quiet")))

    opened(lambda: cast(Bench, object()), loading, Journal(written), turn, meanwhile=meanwhile)
    assert seen == [(True, False, False)] and TURN in written.getvalue()
    turn.end()


def test_what_is_left_to_load_has_the_gpu_to_itself(start: Start, tmp_path: Path) -> None:
    """In its turn, and not before those that open the GPU, and may hold operands, have done so."""
    other = start("other", "open")
    wait_until(lambda: done(tmp_path) == ["other opens"])
    written, turn = io.StringIO(), Turn(tmp_path / "turn", tmp_path)
    loaded: list[bool] = []
    loading: Any = SimpleNamespace(load=lambda last: loaded.append(last), done=False)
    bench: Any = object()
    opens = threading.Thread(target=opened, args=(lambda: bench, loading, Journal(written), turn), daemon=True)
    opens.start()
    wait_until(lambda: TURN in written.getvalue() and (tmp_path / WAITING_FILE).exists())
    assert loaded == [False]
    other.tell("opened")
    opens.join(timeout=60)
    assert loaded == [False, True]
    turn.end()
