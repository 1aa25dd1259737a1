"""kill -9 of the parent, a compile worker, the profiled script and the profiler, at many points of a run.

Each row kills once, at a point of the run's progress that a seed chooses. Then the same command goes on, and must end
with the rows of a run that nobody disturbed, having lost nothing of what was on disk when the kill came.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Undisturbed
from fault_runs import LOOK_S, MEASURED, Machine, require_accounts, rows_of

KINDS = ("parent", "worker", "script", "profiler")
KILLS = 20
# Rows and files that a whole run leaves, about; beyond its end there is nothing to kill.
WHOLE_RUN = 60
SAMPLE = {("parent", 1), ("parent", 3), ("worker", 0), ("script", 2), ("profiler", 4)}
KEPT = ("compiles", "timings", "verdicts", "settled")


def is_worker(command: str) -> bool:
    return "spawn_main" in command


def is_script(command: str) -> bool:
    return "--plan" in command and "nsys" not in command


def is_profiler(command: str) -> bool:
    return "nsys_stand_in" in command and "guarded.py" not in command


VICTIMS: dict[str, Callable[[str], bool]] = {"worker": is_worker, "script": is_script, "profiler": is_profiler}


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

    def strike(self, machine: Machine, parent: int, alive: Callable[[], bool]) -> bool:
        """Waits for the point and, from there on, for the first victim; False when the run ends before."""
        while alive():
            if progress(machine.folder) >= self.point:
                victims = [parent] if self.victim == "parent" else machine.find(VICTIMS[self.victim])
                if victims:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victims[0], signal.SIGKILL)
                        return True
            time.sleep(LOOK_S)
        return False


def kills() -> list[Any]:
    """Five of each kind, each in its fifth of the run; what compiles comes first, what is profiled later.

    By default those of SAMPLE, the others with ``-m grid``.
    """
    dice, each = random.Random(20), KILLS // len(KINDS)
    spans = {"parent": (0, WHOLE_RUN), "worker": (0, 6), "script": (6, WHOLE_RUN - 8), "profiler": (6, WHOLE_RUN - 8)}
    found = []
    for kind, (first, last) in spans.items():
        step = (last - first) / each
        for turn in range(each):
            kill = Kill(kind, int(first + step * (turn + dice.random())))
            marks = [] if (kind, turn) in SAMPLE else [pytest.mark.grid]
            found.append(pytest.param(kill, marks=marks, id=f"{kill.victim}-{kill.point}"))
    return found


@pytest.mark.parametrize("kill", kills())
def test_nothing_is_lost_by_a_kill(kill: Kill, machine: Machine, undisturbed: Undisturbed) -> None:
    process = machine.start(*MEASURED)
    struck = kill.strike(machine, process.pid, lambda: process.poll() is None)
    first = machine.end(process)
    assert machine.orphans() == []
    assert struck, f"nothing to kill: {first.err}"
    if kill.victim == "parent":
        assert first.status == -signal.SIGKILL
    else:
        assert first.status == 0, first.err
    before = stored(machine.folder)

    again = machine.run(*MEASURED)

    assert again.status == 0, again.err
    assert len(machine.run_folders()) == 1
    if kill.victim == "parent":
        after = stored(machine.folder)
        assert all(after[table] >= before[table] for table in ("compiles", "settled"))
        assert not before["compiles"] or again.err.startswith("going on with results/")
    else:
        assert "this run is finished" in again.err
    require_accounts(machine)
    assert rows_of(machine) == undisturbed.rows
