"""Runs plans that check configurations, in a new process after each that kills or hangs one."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.launch.journal import End, Event, Finished, read_journal
from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure.parse_run import Key, crashed_at, from_on, running_at_end
from gemm_tuner.measure.supervise import (
    ACCOUNTED,
    MAX_ATTEMPTS,
    Died,
    OnEvent,
    OutOfTime,
    Watched,
    killed_from_outside,
    require_journal,
    watch,
)
from gemm_tuner.system.processes import MOST_CRASHES


def check_plan(
    plan: Plan, folder: Path, scripts_dir: Path, env: dict[str, str], on_event: OnEvent, of: Watched
) -> None:
    """Checks every entry, in order, in up to MAX_ATTEMPTS processes. Nothing is checked after the plan's deadline.

    An entry whose process was killed from outside is tried again. Entries that MAX_ATTEMPTS processes did not reach are
    reported as Died, too.
    """
    left, crashes = plan, Counter[Key | None]()
    for attempt in range(MAX_ATTEMPTS):
        where = folder / f"start{attempt:02d}"
        where.mkdir(parents=True)
        left.write(where / "plan.json")
        argv = [sys.executable, str(scripts_dir / left.scripts[0]), "--plan", str(where / "plan.json")]
        try:
            ended = watch(argv, env, where, on_event, of)
        except OutOfTime:
            (where / ACCOUNTED).touch()
            return
        journal = read_journal(where / "journal.jsonl")
        if any(isinstance(e, Finished) for e in journal):
            (where / ACCOUNTED).touch()
            return
        require_journal(ended)
        crashed = crashed_at(left, journal, ended)
        key = (crashed.problem, crashed.name) if crashed else None
        crashes[key] += 1
        retried = killed_from_outside(ended) and crashes[key] < MOST_CRASHES
        if crashed is None and not retried:
            raise EnvironmentFault(
                f"the check ended with {ended.how()}: {ended.log_tail() or 'it printed nothing'}",
                where=str(ended.log_path),
            )
        if crashed is not None and not retried:
            on_event(crashed.problem, Died(crashed.name, crashed.message))
            (where / ACCOUNTED).touch()
        left = behind(left, journal, again=retried)
        if not left.work or of.wind_down() or plan.is_over():
            return
    message = f"not checked: {MAX_ATTEMPTS} processes died before its turn"
    for work in left.work:
        for _, name in work.entries:
            on_event(work.problem, Died(name, message))


def behind(plan: Plan, journal: Sequence[Event], *, again: bool) -> Plan:
    """What is left of a plan after the entry that was running, or that ended last. again: include the one that was
    running."""
    running = running_at_end(journal)
    if running is not None:
        return from_on(plan, *running, itself=again)
    ended = [(e.work, e.name) for e in journal if isinstance(e, End)]
    return from_on(plan, *ended[-1], itself=False) if ended else plan
