"""Times a plan in as many profiler starts as necessary; after a crash the rest is timed in a new process.

* A launcher crashes or hangs: the configuration that was running fails, and the rest is timed again. In finals, where
  the configurations of a size alternate, halves of them run again until one crashes alone.
* A launcher is killed from outside: the first time nothing fails, and the part is timed again.
* The profiler fails: each half of the plan is tried once more, and each half of that. If it only recorded nothing, the
  whole plan is tried once more first.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gemm_tuner.core.errors import CannotWrite, EnvironmentFault
from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.launch.journal import Compiles, End, Event, Fail, Finished, read_journal
from gemm_tuner.launch.plan import FINALS, SCREEN, VENDOR, Plan
from gemm_tuner.measure.launcher_events import Again, OnEvent, ignore
from gemm_tuner.measure.parse_run import (
    Key,
    at_end,
    collect,
    crash_timing,
    cut,
    failures,
    given_up,
    halves,
    probes,
    remaining,
    told_the_known,
    whole_sizes,
)
from gemm_tuner.measure.phases import added, phases_of
from gemm_tuner.measure.profiler_faults import profiler_failed, require_a_trace, with_another_tool
from gemm_tuner.measure.supervise import (
    ACCOUNTED,
    MAX_ATTEMPTS,
    PROBE,
    NotBegun,
    killed_from_outside,
    require_journal,
)
from gemm_tuner.profilers import NotRecorded, Profiler, TraceError
from gemm_tuner.system.processes import MOST_CRASHES, Ended

# nsys 2023.4 fails now and then by itself, on a loaded machine more often.
MOST_FAILURES = 2

OnFound = Callable[[dict[Key, Timing]], None]
Start = Callable[[Plan, Path], Ended]


@dataclass
class StageRun:
    """Results of one stage. timings: by (problem, configuration). compiled: number of JIT compilations in launchers.
    starts: number of profiler starts. seconds: wall time. phases: seconds by phase of the starts
    (``phases.phases_of``), and phased: how many of them have phases."""

    timings: dict[Key, Timing] = field(default_factory=dict)
    compiled: int = 0
    starts: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    phased: int = 0


@dataclass(frozen=True)
class Part:
    """The entries for one profiler start.

    failed:   how often the profiler failed on it; after MOST_FAILURES another failure ends the run.
    probe:    part of a size's finals that crashed, run again to find the configuration that crashes; times are
              discarded.
    """

    plan: Plan
    failed: int = 0
    probe: bool = False


@dataclass(frozen=True)
class Failure:
    """Results of a crashed start.

    found:   valid timings, and the failure of the configuration that caused the crash, if it is known.
    retried: it was killed from outside for the first time, so no configuration fails and the part is timed again.
    probes:  plans that find the configuration that caused the crash.
    """

    found: dict[Key, Timing]
    retried: bool = False
    probes: Sequence[Plan] = ()


def time_plan(
    plan: Plan,
    profiler: Profiler,
    start: Start,
    folder: Path,
    on_found: OnFound,
    wind_down: Callable[[], bool],
    about_entries: int = 0,
    on_event: OnEvent = ignore,
) -> StageRun:
    """Times the entries of the plan until its deadline.

    start:         runs a plan under the profiler, with its files in a folder.
    on_found:      called with new timings after each start.
    about_entries: how many entries a start has, about; 0: all of them. A crash loses the times of its start, so cheap
                   starts should be small.
    on_event:      called with ``Again`` when configurations that had ended are timed again.
    Raises EnvironmentFault if the profiler fails three times on the same configurations.
    """
    began, stage = time.monotonic(), Stage(profiler, on_found)
    first = replace(
        plan,
        scopes=profiler.uses_scopes,
        capture_range=profiler.uses_capture_range,
        clock=profiler.uses_clock,
    )
    stage.parts.extend(Part(part) for part in (cut(first, about_entries) if about_entries else [first]))
    entries = {(work.problem, name): script for work in plan.work for script, name in work.entries}
    attempts = MAX_ATTEMPTS + len(stage.parts) - 1
    while stage.parts and stage.run.starts < attempts and not (stage.run.starts and (wind_down() or plan.is_over())):
        part = stage.parts.popleft()
        left = tuple(remaining(part.plan.work, stage.run.timings))
        if plan.stage == SCREEN:
            left = tuple(told_the_known(left, stage.run.timings, entries))
        part = replace(part, plan=replace(part.plan, work=left))
        if not part.plan.work:
            continue
        where = folder / f"start{stage.run.starts:02d}"
        where.mkdir(parents=True)
        stage.run.starts += 1
        if part.probe:
            (where / PROBE).touch()
        failed, started = "", time.time()
        journal, phases = list[Event](), dict[str, float]()
        try:
            ended = start(part.plan, where)
            converted = time.time()
            journal = read_journal(where / "journal.jsonl")
            stage.take(part, where, ended, journal)
            phases = phases_of(journal, started, ended.unix_s, converted, time.time())
        except CannotWrite:
            raise
        except NotBegun:
            (where / ACCOUNTED).touch()
            break
        except EnvironmentFault as fault:
            if part.failed == MOST_FAILURES:
                if isinstance(fault, TraceError):
                    raise with_another_tool(fault, profiler) from fault
                raise
            journal = journal or read_journal(where / "journal.jsonl")
            (where / ACCOUNTED).touch()
            what_next, again = tried_again(part, fault)
            failed = f"{part.plan.stage}: {what_next}, because {fault.one_line()}"
            stage.parts.extendleft(reversed(again))
        stage.note_phases(phases)
        if lost := ended_in(part.plan, journal) - stage.run.timings.keys():
            on_event(part.plan.work[0].problem, Again(len(lost), failed))
    if not wind_down() and not plan.is_over():
        for part in stage.parts:
            stage.keep(given_up(part.plan, attempts))
    stage.run.seconds = time.monotonic() - began
    return stage.run


def tried_again(part: Part, fault: EnvironmentFault) -> tuple[str, list[Part]]:
    """What is timed after the profiler failed on a part, in words and as parts: it may have been too much for it."""
    nothing = isinstance(fault, NotRecorded) or (isinstance(fault, TraceError) and fault.trouble == "empty")
    if nothing and not part.failed:
        return "what was not recorded is timed again", [replace(part, failed=part.failed + 1)]
    shorter = [replace(part, plan=half, failed=part.failed + 1) for half in halves(part.plan)]
    return "the next starts are shorter", shorter


@dataclass
class Stage:
    """The state while a plan is timed: results so far, and the queue of remaining parts.

    crashes: how often a launcher crashed while (problem, configuration) was running; the configuration is "" in rounds
             of finals.
    probed:  for each problem whose finals were probed, the number of configurations at that time.
    """

    profiler: Profiler
    on_found: OnFound
    parts: deque[Part] = field(default_factory=deque)
    run: StageRun = field(default_factory=StageRun)
    crashes: Counter[Key] = field(default_factory=Counter)
    probed: dict[Problem, int] = field(default_factory=dict)

    def take(self, part: Part, where: Path, ended: Ended, journal: Sequence[Event]) -> None:
        """Records the results of a start and queues the remaining entries of its part.

        Raises EnvironmentFault if the profiler failed or wrote nothing usable.

        The order of steps matters, because the run may be killed between any two of them. Results are stored (by
        ``on_found``) before the start is marked ACCOUNTED, so that a resumed run counts a crash twice rather than
        never. A retried start is not marked, so that a resumed run still knows which configuration was running. Probes
        are queued before the part itself, so that it is timed again only when the configuration to leave out is known.
        """
        if any(isinstance(e, Finished) for e in journal):
            if ended.exit_status != 0:
                raise profiler_failed(self.profiler, ended)
            found = collect(part.plan, journal, self.profiler, where)
            require_a_trace({**self.run.timings, **found}, self.profiler, ended)
            self._enter(part, journal, found)
            (where / ACCOUNTED).touch()
            return
        failure = self._on_crash(part, journal, where, ended)
        self._enter(part, journal, failure.found)
        if not failure.retried:
            (where / ACCOUNTED).touch()
        if not (part.probe and failure.probes):
            self.parts.appendleft(part)
        self.parts.extendleft(reversed([Part(plan, probe=True) for plan in failure.probes]))

    def _enter(self, part: Part, journal: Sequence[Event], found: dict[Key, Timing]) -> None:
        self.run.compiled += sum(e.compiled for e in journal if isinstance(e, Compiles))
        if part.probe:
            found = {key: t for key, t in found.items() if t.status not in (Status.OK, Status.MISSING_IN_TRACE)}
        self.keep(found)

    def note_phases(self, of: dict[str, float]) -> None:
        self.run.phases = added(self.run.phases, of)
        self.run.phased += bool(of)

    def keep(self, found: dict[Key, Timing]) -> None:
        self.on_found(found)
        self.run.timings.update(found)

    def _on_crash(self, part: Part, journal: Sequence[Event], where: Path, ended: Ended) -> Failure:
        """Evaluates a crashed start.

        Raises EnvironmentFault if no configuration was running, because then the profiler itself failed.
        """
        require_journal(ended)
        at = at_end(journal)
        if at is None:
            raise profiler_failed(self.profiler, ended)
        try:
            found = collect(part.plan, journal, self.profiler, where)
        except TraceError:
            found = failures(part.plan, journal)
        # After a crash the profiler may lose its last rows, so configurations without rows are timed again, not failed.
        found = {key: t for key, t in found.items() if t.status != Status.MISSING_IN_TRACE}
        if part.plan.stage == FINALS:
            found = whole_sizes(part.plan, found)
        key = part.plan.work[at[0]].problem, at[1]
        if key in found:
            return Failure(found)
        self.crashes[key] += 1
        if killed_from_outside(ended) and self.crashes[key] < MOST_CRASHES:
            return Failure(found, retried=True)
        if at[1]:
            return Failure({**found, key: crash_timing(*key, ended)})
        return self._on_crashed_rounds(part, at[0], found, ended)

    def _on_crashed_rounds(self, part: Part, index: int, found: dict[Key, Timing], ended: Ended) -> Failure:
        """Handles a crash during rounds of a size's finals, by bisecting its configurations with probes.

        Each probe has half of the configurations, without the vendor library. A probe that crashes is bisected further,
        and a configuration that crashes alone has failed. Afterwards the finals run again without the failed ones. If
        they crash again with the same configurations, the vendor library is marked as failed; without a vendor library,
        all configurations are.
        """
        work = part.plan.work[index]
        names = [name for _, name in work.entries]
        if part.probe and len(names) > 1:
            return Failure(found, probes=probes(part.plan, index))
        if not part.probe and self.probed.get(work.problem) != len(names):
            self.probed[work.problem] = len(names)
            return Failure(found, probes=probes(part.plan, index))
        failing = [VENDOR] if work.vendor else names
        return Failure({**found, **{(work.problem, name): crash_timing(work.problem, name, ended) for name in failing}})


def ended_in(plan: Plan, journal: Sequence[Event]) -> set[Key]:
    """What has ended or failed in a start."""
    return {(plan.work[event.work].problem, event.name) for event in journal if isinstance(event, (End, Fail))}
