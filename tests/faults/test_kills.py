"""kill -9 of the parent, a compile worker, the profiled script and the profiler, at many points of a run.

Kills come at points of the run's progress that a seed chooses. Then the same command goes on, and must end with the
rows of a run that nothing disturbed, having lost nothing of what was on disk when the kill came. ``make test`` kills
five times in one run and its continuations, ``make test-all`` once in each of twenty runs too.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from fault_runs import LOOK_S, MEASURED, Machine, Undisturbed, require_complete_states, rows_of

KINDS = ("parent", "worker", "script", "profiler")
KILLS = 20
# Progress that a whole run makes, about; beyond its end there is nothing to kill.
WHOLE_RUN = 160
# The sampled kills by start of the command: kind, and which fifth of the run. All but the last start end by one.
SAMPLE = ((("worker", 0), ("parent", 0)), (("script", 2), ("parent", 2)), (("profiler", 4),))
KEPT = ("compiles", "timings", "verdicts", "finished")


def is_worker_or_their_server(command: str) -> bool:
    return "forkserver" in command


def is_worker(pid: int) -> bool:
    """Whether the process is one that a server has forked, and not the server."""
    try:
        parent = psutil.Process(pid).parent()
        return parent is not None and is_worker_or_their_server(" ".join(parent.cmdline()))
    except psutil.Error:
        return False


def is_script(command: str) -> bool:
    return "--plan" in command and "nsys" not in command


def is_profiler(command: str) -> bool:
    return "nsys_stand_in" in command and "guarded.py" not in command and "--version" not in command


VICTIMS: dict[str, Callable[[str], bool]] = {
    "worker": is_worker_or_their_server,
    "script": is_script,
    "profiler": is_profiler,
}


def stored(folder: Path) -> dict[str, int]:
    """Rows of each table of the store; 0 where there is none yet."""
    found = dict.fromkeys(KEPT, 0)
    for path in folder.glob("results/*/run.sqlite"):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base,
        ):
            for table in KEPT:
                found[table] = base.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
    return found


def progress(folder: Path) -> int:
    """Grows from the start of a run to its end: rows stored, events journalled."""
    journals = sum(path.read_bytes().count(b'"end"') for path in folder.glob("results/*/raw/*/start*/journal.jsonl"))
    return sum(stored(folder).values()) + journals


@dataclass(frozen=True)
class Kill:
    victim: str
    point: int

    def strike(self, machine: Machine, process: subprocess.Popen[str]) -> bool:
        """Waits for the point, or for the last process of the finals, and from there on for the first victim."""
        while process.poll() is None:
            if progress(machine.folder) >= self.point or machine.is_held:
                victims = [process.pid] if self.victim == "parent" else machine.find(VICTIMS[self.victim])
                if self.victim == "worker":
                    victims = [pid for pid in victims if is_worker(pid)]
                if victims:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victims[0], signal.SIGKILL)
                        return True
            time.sleep(LOOK_S)
        return False


def kills() -> dict[tuple[str, int], Kill]:
    """Five of each kind, each in its fifth of the run; what compiles comes first, what is profiled later."""
    dice, each = random.Random(20), KILLS // len(KINDS)
    spans = {"parent": (0, WHOLE_RUN), "worker": (0, 5), "script": (6, WHOLE_RUN - 20), "profiler": (6, WHOLE_RUN - 20)}
    found = {}
    for kind, (first, last) in spans.items():
        step = (last - first) / each
        for turn in range(each):
            found[kind, turn] = Kill(kind, int(first + step * (turn + dice.random())))
    return found


def starts() -> list[Any]:
    """The kills of each start of a command: the sample, and each kill alone."""
    every = kills()
    sample = [[every[one] for one in start] for start in SAMPLE]
    alone = [
        pytest.param([[kill]], marks=pytest.mark.grid, id=f"{kill.victim}-{kill.point}") for kill in every.values()
    ]
    return [pytest.param(sample, id="five"), *alone]


@pytest.mark.parametrize("starts", starts())
def test_nothing_is_lost_by_a_kill(starts: list[list[Kill]], machine: Machine, undisturbed: Undisturbed) -> None:
    for kills in starts:
        before = stored(machine.folder)
        machine.hold.touch()  # it does not end before it is struck
        process = machine.start(*MEASURED, "--num_threads", "2")
        struck = [kill.strike(machine, process) for kill in kills]
        machine.release()
        done = machine.end(process)
        assert machine.orphans() == []
        assert all(struck), f"nothing to kill: {struck} {done.err}"
        assert done.status == (-signal.SIGKILL if kills[-1].victim == "parent" else 0), done.err
        require_nothing_lost(machine, before)
        assert not before["compiles"] or done.err.startswith("going on with results/")
    before = stored(machine.folder)

    again = machine.run(*MEASURED)

    assert again.status == 0, again.err
    assert len(machine.run_folders()) == 1
    if starts[-1][-1].victim == "parent":
        require_nothing_lost(machine, before)
        assert not before["compiles"] or again.err.startswith("going on with results/")
    else:
        assert "this run is finished" in again.err
    require_complete_states(machine)
    assert rows_of(machine) == undisturbed.rows


def require_nothing_lost(machine: Machine, before: dict[str, int]) -> None:
    after = stored(machine.folder)
    assert all(after[table] >= before[table] for table in ("compiles", "finished"))
