"""Launchers of one GPU as processes that say what they have done, and do the next thing for each line they read."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gemm_tuner.launch.turn import WAITING_FILE
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
one_step = {
    "take": (turn.take, "begins"),
    "go ahead": (turn.go_ahead, "goes ahead"),
    "stay behind": (turn.stay_behind, "may take"),
    "time": (turn.begin_timing, "times"),
}
for line in map(str.strip, sys.stdin):
    if line == "open":
        with turn.opening():
            say("opens")
            sys.stdin.readline()
            say("has opened")
    elif line in one_step:
        step, what = one_step[line]
        step()
        say(what)
    elif line == "give way":
        say("gives way")
        turn.give_way()
        say("goes on")
    else:
        say("ends")
        turn.end()
        break
print("through", flush=True)
"""


Start = Callable[..., "Launcher"]


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


def done(folder: Path) -> list[str]:
    path = folder / "done"
    return path.read_text().splitlines() if path.exists() else []


def is_locked(path: Path) -> bool:
    """Whether another description of this file holds a lock."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
