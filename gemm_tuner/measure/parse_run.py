"""Reads the results of a launcher from its journal and trace, and makes plans for the remaining entries."""

from __future__ import annotations

import math
import statistics
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.launch.journal import Begin, End, Event, Fail, Ran, Round
from gemm_tuner.launch.plan import AA_TEST, SCREEN, VENDOR, Plan, Work
from gemm_tuner.measure import attribution, drift
from gemm_tuner.profilers import Profiler
from gemm_tuner.system.processes import Ended

Key = tuple[Problem, str]


def collect(plan: Plan, journal: Sequence[Event], profiler: Profiler, where: Path) -> dict[Key, Timing]:
    """The timings of all configurations that a launcher completed or that failed, from its journal and trace."""
    found = failures(plan, journal)
    ended = {(e.work, e.name): e.early_stopped for e in journal if isinstance(e, End)}
    if not ended:
        return found
    calls = attribution.calls_of(journal)
    trace = profiler.read(where)
    joined = attribution.join(trace, calls, by_scope=profiler.uses_scopes, real_time=profiler.keeps_real_time)
    drifts = drift.of_works(plan.work, joined, first_ok(ended), plan.method.timed_calls) if plan.stage == SCREEN else {}
    for (work, name), early in ended.items():
        problem = plan.work[work].problem
        samples, kernels_us = joined.samples_us.get((work, name), ()), joined.kernels_us.get((work, name), ())
        if work in drifts:
            samples, kernels_us = drift.corrected(joined, (work, name), drifts[work])
        if samples:
            status = Status.EARLY_STOPPED if early else Status.OK
            message = plan.work[work].again if name == AA_TEST else ""  # the finalist that was timed twice
        else:
            status, message = Status.MISSING_IN_TRACE, joined.missing.get((work, name), "no timed call")
        found[problem, name] = Timing(problem, name, status, samples, message, kernels_us=kernels_us)
    return found


def first_ok(ended: Mapping[tuple[int, str], bool]) -> dict[int, str]:
    """Of each work, the configuration that came to its end first and was no loser. ended: in order, whether a loser."""
    found: dict[int, str] = {}
    for (work, name), early in ended.items():
        if not early:
            found.setdefault(work, name)
    return found


def failures(plan: Plan, journal: Sequence[Event]) -> dict[Key, Timing]:
    """The failures in the journal; they need no trace."""
    found = {}
    for event in journal:
        if isinstance(event, Fail):
            key = (plan.work[event.work].problem, event.name)
            found[key] = Timing(*key, event.status, message=event.message)
    return found


def at_end(journal: Sequence[Event]) -> tuple[int, str] | None:
    """(index of work, configuration) that was running at the end of the journal, or that crashed the launcher.

    The configuration is "" in rounds of finals, where all configurations of a size alternate. None if none was running.
    """
    at: tuple[int, str] | None = None
    for event in journal:
        if isinstance(event, (Begin, Round)):
            at = (event.work, event.name if isinstance(event, Begin) else "")
        elif isinstance(event, (End, Ran)) or (isinstance(event, Fail) and event.status != Status.CRASHED):
            rounds = [(event.work, "")] if isinstance(event, End) else []
            at = None if at in [(event.work, event.name), *rounds] else at
    return at


def compared_at_end(journal: Sequence[Event]) -> int | None:
    """The index of the work whose configurations had all run and were being compared, else None."""
    last = next((event for event in reversed(journal) if isinstance(event, (Begin, Ran, End, Fail))), None)
    return last.work if isinstance(last, Ran) else None


def crash_timing(problem: Problem, name: str, ended: Ended) -> Timing:
    """The timing of a configuration that crashed or hung its launcher: TIMEOUT or CRASHED, and how the launcher
    ended."""
    status = Status.TIMEOUT if ended.stalled else Status.CRASHED
    words = [ended.how()] if ended.stalled else [ended.how(), ended.log_tail()]
    return Timing(problem, name, status, message=": ".join(filter(None, words)))


def remaining(works: Iterable[Work], done: Container[Key]) -> list[Work]:
    """The works without the entries in ``done``. A vendor library that crashed a launcher is not timed again."""
    left = []
    for one in works:
        entries = tuple(e for e in one.entries if (one.problem, e[1]) not in done)
        if entries:
            vendor = one.vendor and (one.problem, VENDOR) not in done
            again = one.again if any(name == one.again for _, name in entries) else ""
            left.append(replace(one, entries=entries, vendor=vendor, again=again))
    return left


def whole_sizes(plan: Plan, found: dict[Key, Timing]) -> dict[Key, Timing]:
    """``found`` without times of incomplete sizes, because a size's finals are all-or-nothing. Failures are kept."""
    some_left = {
        work.problem for work in plan.work if any((work.problem, name) not in found for _, name in work.entries)
    }
    return {key: timing for key, timing in found.items() if key[0] not in some_left or not timing.samples_us}


def given_up(plan: Plan, attempts: int) -> dict[Key, Timing]:
    """Failures for all remaining entries of a plan that has used up its attempts."""
    message = f"not run: {attempts} launchers died before its turn"
    keys = [(work.problem, name) for work in plan.work for _, name in work.entries]
    return {key: Timing(*key, Status.CRASHED, message=message) for key in keys}


def from_on(plan: Plan, work: int, name: str, *, itself: bool) -> Plan:
    """The plan from an entry on. itself: include that entry; otherwise only the later ones."""
    entries = plan.work[work].entries
    at = [other for _, other in entries].index(name) + (not itself)
    left = (replace(plan.work[work], entries=entries[at:]), *plan.work[work + 1 :])
    return replace(plan, work=tuple(one for one in left if one.entries))


def halves(plan: Plan) -> list[Plan]:
    """The plan in two halves with about the same number of entries. The finals of a size are not divided."""
    if plan.stage == SCREEN:
        apart = [replace(work, entries=(entry,)) for work in plan.work for entry in work.entries]
    else:
        apart = list(plan.work)
    if len(apart) < 2:
        return [plan]
    middle = len(apart) // 2
    return [replace(plan, work=joined(part)) for part in (apart[:middle], apart[middle:])]


def cut(plan: Plan, about_entries: int) -> list[Plan]:
    """The plan in parts of nearly equal size, in order: ``about_entries`` entries, at most half as many more."""
    apart = [replace(work, entries=(entry,)) for work in plan.work for entry in work.entries]
    count = round(len(apart) / about_entries) or min(1, len(apart))
    parts = [apart[len(apart) * at // count : len(apart) * (at + 1) // count] for at in range(count)]
    return [replace(plan, work=joined(part)) for part in parts]


def told_the_known(works: Iterable[Work], timings: Mapping[Key, Timing], entries: Mapping[Key, int]) -> Iterator[Work]:
    """The works, each with the time of its size's fastest configuration and with its reference, where these timings
    know a faster one, or know the first. entries: the script of each configuration."""
    best: dict[Problem, float] = {}
    first: dict[Problem, Timing] = {}
    for (problem, _), timing in timings.items():
        if timing.status == Status.OK and timing.samples_us:
            best[problem] = min(best.get(problem, math.inf), statistics.median(timing.samples_us))
            first.setdefault(problem, timing)
    for work in works:
        known = [us for us in (work.best_us, best.get(work.problem, 0.0)) if us > 0]
        told = replace(work, best_us=min(known, default=0.0))
        if not work.reference and work.problem in first:
            name, us = drift.reference_of([first[work.problem]], work.problem)
            told = replace(told, reference=((entries[work.problem, name], name),), reference_us=us)
        yield told


def probes(plan: Plan, index: int) -> list[Plan]:
    """Two plans with half of a work's entries each, without the vendor library, to find which half crashes."""
    work = plan.work[index]
    middle = len(work.entries) // 2
    parts = [part for part in (work.entries[:middle], work.entries[middle:]) if part]
    return [replace(plan, work=(replace(work, entries=part, vendor=False, again=""),)) for part in parts]


def joined(works: list[Work]) -> tuple[Work, ...]:
    """The works, with consecutive ones of the same problem merged."""
    found: list[Work] = []
    for work in works:
        if found and found[-1].problem == work.problem:
            found[-1] = replace(found[-1], entries=found[-1].entries + work.entries)
        else:
            found.append(work)
    return tuple(found)
