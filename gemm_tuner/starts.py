"""Times a plan in as many profiler starts as it takes, and loses as little as can be.

A launcher that dies or hangs costs the configuration it was at, and the rest runs again in a new process. One that
somebody else killed costs nothing the first time. A profiler that fails has another try, with half as much in a start.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemm_tuner.errors import CannotWrite, EnvironmentFault
from gemm_tuner.launcher.journal import read_journal
from gemm_tuner.launcher.plan import FINALS, Plan
from gemm_tuner.outcomes import Key, blame, collect, failures, given_up, halves, whole_sizes, without
from gemm_tuner.processes import Ended
from gemm_tuner.profilers import Profiler, TraceError
from gemm_tuner.records import Status, Timing
from gemm_tuner.watching import (
    ACCOUNTED,
    MAX_ATTEMPTS,
    MOST_DEATHS,
    killed_from_outside,
    require_journal,
)

OnFound = Callable[[dict[Key, Timing]], None]
Start = Callable[[Plan, Path], Ended]


@dataclass
class StageRun:
    """What one stage brought: timings by (problem, configuration), JIT compiles, starts, seconds."""

    timings: dict[Key, Timing] = field(default_factory=dict)
    compiled: int = 0
    from_cache: int = 0
    starts: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Part:
    """What one start is to time. ``last_try``: an earlier one of it failed as a whole."""

    plan: Plan
    last_try: bool = False


def time_plan(
    plan: Plan, profiler: Profiler, start: Start, folder: Path, on_found: OnFound, wind_down: Callable[[], bool]
) -> StageRun:
    """Times every entry of the plan that its deadline leaves time for.

    start: runs a plan under the profiler, its files in a folder.
    Raises EnvironmentFault when the profiler fails twice.
    """
    began, stage = time.monotonic(), Stage(profiler, on_found)
    first = replace(plan, scopes=profiler.uses_scopes, capture_range=profiler.uses_capture_range)
    stage.parts.append(Part(first))
    while stage.parts and stage.run.starts < MAX_ATTEMPTS and not (stage.run.starts and wind_down()):
        part = stage.parts.popleft()
        where = folder / f"start{stage.run.starts:02d}"
        where.mkdir(parents=True)
        stage.run.starts += 1
        try:
            stage.take(part, where, start(part.plan, where))
        except CannotWrite:
            raise
        except EnvironmentFault:
            if part.last_try:
                raise
            (where / ACCOUNTED).touch()
            stage.parts.extendleft(reversed([Part(half, last_try=True) for half in halves(part.plan)]))
    if not wind_down():
        for part in stage.parts:
            stage.keep(given_up(part.plan, MAX_ATTEMPTS))
    stage.run.seconds = time.monotonic() - began
    return stage.run


@dataclass
class Stage:
    """What is known and what is left while a plan is timed."""

    profiler: Profiler
    on_found: OnFound
    parts: deque[Part] = field(default_factory=deque)
    run: StageRun = field(default_factory=StageRun)
    deaths: Counter[Key] = field(default_factory=Counter)

    def take(self, part: Part, where: Path, ended: Ended) -> None:
        """Enters what a start brought and queues what is left of its part. Raises EnvironmentFault when the profiler
        failed, or wrote nothing that can be used."""
        journal = read_journal(where / "journal.jsonl")
        if any(e["event"] == "finished" for e in journal):
            if ended.exit_status != 0:
                raise profiler_failed(self.profiler, ended)
            found = collect(part.plan, journal, self.profiler, where)
            require_a_trace({**self.run.timings, **found}, self.profiler, ended)
            spared = False
        else:
            found, spared = self._of_the_dead(part, journal, where, ended)
        self._count(journal)
        self.keep(found)
        if not spared:  # else a resumed run must know whom it was at
            (where / ACCOUNTED).touch()
        left = without(part.plan, self.run.timings)
        if left.work and (spared or not any(e["event"] == "finished" for e in journal)):
            self.parts.appendleft(Part(left, part.last_try))

    def keep(self, found: dict[Key, Timing]) -> None:
        self.on_found(found)
        self.run.timings.update(found)

    def _count(self, journal: list[dict[str, Any]]) -> None:
        self.run.compiled += sum(e["compiled"] for e in journal if e["event"] == "compiles")
        self.run.from_cache += sum(e["from_cache"] for e in journal if e["event"] == "compiles")

    def _of_the_dead(
        self, part: Part, journal: list[dict[str, Any]], where: Path, ended: Ended
    ) -> tuple[dict[Key, Timing], bool]:
        """The timings of a start that did not finish, that of the one it was at among them, and whether that one is
        spared for once."""
        require_journal(ended)
        blamed = blame(part.plan, journal, ended)
        if blamed is None:
            raise profiler_failed(self.profiler, ended)
        try:
            found = collect(part.plan, journal, self.profiler, where)
        except TraceError:
            found = failures(part.plan, journal)
        # What ran before the crash and is not in the trace went down with it: it runs again.
        found = {key: t for key, t in found.items() if t.status != Status.MISSING_IN_TRACE}
        if part.plan.stage == FINALS:
            found = whole_sizes(part.plan, found)
        key = (blamed.problem, blamed.name)
        if key not in found:
            self.deaths[key] += 1
            if killed_from_outside(ended) and self.deaths[key] < MOST_DEATHS:
                return found, True
            found[key] = blamed
        return found, False


def profiler_failed(profiler: Profiler, ended: Ended) -> EnvironmentFault:
    """The error for a profiler that failed as a whole."""
    what = f"{profiler.name} ended with {ended.how()}"
    if ended.stalled:
        what = f"{profiler.name} did not come to an end and was killed"
    return EnvironmentFault(
        f"{what}: {ended.log_tail() or 'it printed nothing'}",
        where=str(ended.log_path),
        hint="read that file, or name another tool with --profiler",
    )


def require_a_trace(timings: dict[Key, Timing], profiler: Profiler, ended: Ended) -> None:
    """A trace that holds none of what ran is a fault of the profiler, not of the configurations."""
    missing = [t for t in timings.values() if t.status == Status.MISSING_IN_TRACE]
    if missing and not any(t.samples_us for t in timings.values()):
        errors = " | ".join(
            line.strip() for line in ended.log_path.read_text("utf-8", "replace").splitlines() if "rror" in line
        )
        raise EnvironmentFault(
            f"{profiler.name} recorded none of {len(missing)} configurations that ran: {missing[0].message}",
            where=str(ended.log_path),
            hint=f"its log says: {errors[:600]}" if errors else "name another tool with --profiler",
        )
