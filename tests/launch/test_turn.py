"""Launchers of one GPU take turns on it, also those that give way and go on later."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gemm_tuner.launch.turn import WAITING_FILE, Turn
from gemm_tuner.system.installation import IMPORT_ROOT

# Says what it has done, and does the next thing for each line that it reads.
LAUNCHER = """
import sys
from pathlib import Path
from gemm_tuner.launch.turn import Turn
folder, done = Path(sys.argv[1]), Path(sys.argv[2])
def say(what):
    with done.open("a") as stream:
        stream.write(f"{folder.name} {what}\\n")
turn = Turn(folder.parent / "turn", folder)
say("begins")
for line in sys.stdin:
    if line == "end\\n":
        say("ends")
        turn.end()
        break
    say("gives way")
    turn.give_way()
    say("goes on")
print("through", flush=True)
"""


class Launcher:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        command = [sys.executable, "-c", LAUNCHER, str(self.folder), str(folder / "done")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=IMPORT_ROOT, text=True, **pipes)  # type: ignore[call-overload]

    def waits(self) -> bool:
        assert self.process.poll() is None
        return (self.folder / WAITING_FILE).exists()

    def tell(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def through(self) -> None:
        assert self.process.stdout.readline() == "through\n"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Launcher]]:
    started: list[Launcher] = []

    def start(name: str) -> Launcher:
        started.append(Launcher(tmp_path, name))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def done(folder: Path) -> list[str]:
    path = folder / "done"
    return path.read_text().splitlines() if path.exists() else []


def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_next(folder: Path) -> bool:
    """Whether a launcher waits for the turn alone."""
    with (folder / "turn.queue").open("w") as queue:
        try:
            fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_one_that_gives_way_goes_on_after_the_one_that_waits(start: Callable[[str], Launcher], tmp_path: Path) -> None:
    check = start("check")
    until(lambda: done(tmp_path) == ["check begins"])
    finals = start("finals")
    until(lambda: finals.waits() and is_next(tmp_path))
    check.tell("give way")
    until(lambda: "finals begins" in done(tmp_path))
    until(check.waits)
    assert "check goes on" not in done(tmp_path)
    finals.tell("end")
    finals.through()
    until(lambda: "check goes on" in done(tmp_path))
    check.tell("end")
    check.through()
    assert done(tmp_path) == [
        "check begins", "check gives way", "finals begins", "finals ends", "check goes on", "check ends",
    ]  # fmt: skip


def test_where_nobody_waits_it_goes_on_at_once(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "turn", tmp_path)
    turn.give_way()
    assert not (tmp_path / WAITING_FILE).exists()
    turn.end()
    Turn(tmp_path / "turn", tmp_path).end()


def test_a_launcher_that_dies_while_it_waits_holds_up_nobody(start: Callable[[str], Launcher], tmp_path: Path) -> None:
    check, first, second = start("check"), start("first"), start("second")
    until(lambda: bool(done(tmp_path)))
    holder = next(one for one in (check, first, second) if done(tmp_path)[0] == f"{one.folder.name} begins")
    others = [one for one in (check, first, second) if one is not holder]
    for other in others:
        until(other.waits)
    others[0].process.kill()
    others[0].process.wait()
    holder.tell("end")
    until(lambda: f"{others[1].folder.name} begins" in done(tmp_path))
