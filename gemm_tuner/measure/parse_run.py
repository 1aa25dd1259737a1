"""What a launcher got through: read from its journal and its trace, and what is left to do after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.launch.journal import Begin, End, Event, Fail, Round
from gemm_tuner.launch.plan import AA_TEST, SCREEN, VENDOR, Plan, Work
from gemm_tuner.measure import attribution
from gemm_tuner.profilers import Profiler
from gemm_tuner.system.processes import Ended

Key = tuple[Problem, str]


def collect(plan: Plan, journal: Sequence[Event], profiler: Profiler, where: Path) -> dict[Key, Timing]:
    """The timings of all configurations that a launcher got through, from its journal and trace."""
    found = failures(plan, journal)
    ended = {(e.work, e.name): e.early_stopped for e in journal if isinstance(e, End)}
    if not ended:
        return found
    calls = attribution.calls_of(journal)
    joined = attribution.join(profiler.read(where), calls, by_scope=profiler.uses_scopes)
    for (work, name), early in ended.items():
        problem = plan.work[work].problem
        samples = joined.samples_us.get((work, name), ())
        if samples:
            # The second contender of a kernel says whose twin it is.
            status, message = (Status.EARLY_STOPPED if early else Status.OK), twin_of(plan.work[work], name)
        else:
            status, message = Status.MISSING_IN_TRACE, joined.missing.get((work, name), "no timed call")
        found[problem, name] = Timing(problem, name, status, samples, message)
    return found


def twin_of(work: Work, name: str) -> str:
    return work.again if name == AA_TEST else ""


def failures(plan: Plan, journal: Sequence[Event]) -> dict[Key, Timing]:
    """The configurations that the launcher itself saw fail; no trace is needed to know them."""
    found = {}
    for event in journal:
        if isinstance(event, Fail):
            key = (plan.work[event.work].problem, event.name)
            found[key] = Timing(*key, event.status, message=event.message)
    return found


def running_at_end(journal: Sequence[Event]) -> tuple[int, str] | None:
    """(work, configuration) that began last and did not end, or ended the launcher. Nobody, once the rounds of finals
    have begun, in which all of a size run in turns."""
    at: tuple[int, str] | None = None
    for event in journal:
        if isinstance(event, Begin):
            at = (event.work, event.name)
        elif isinstance(event, Round):
            at = None
        elif isinstance(event, End) or (isinstance(event, Fail) and event.status != Status.CRASHED):
            at = None if at == (event.work, event.name) else at
    return at


def round_at_end(journal: Sequence[Event]) -> int | None:
    """The work whose rounds had begun last and not ended."""
    at: int | None = None
    for event in journal:
        if isinstance(event, (Begin, End, Round)):
            at = event.work if isinstance(event, Round) else None
    return at


def blame(plan: Plan, journal: Sequence[Event], ended: Ended) -> Timing | None:
    """The configuration that a launcher died or hung at."""
    at = running_at_end(journal)
    if at is None:
        return None
    return blamed(plan.work[at[0]].problem, at[1], ended)


def blamed(problem: Problem, name: str, ended: Ended) -> Timing:
    """What a launcher's end says of the configuration that did it."""
    status = Status.TIMEOUT if ended.stalled else Status.CRASHED
    words = [ended.how()] if ended.stalled else [ended.how(), ended.log_tail()]
    return Timing(problem, name, status, message=": ".join(filter(None, words)))


def without(plan: Plan, done: dict[Key, Timing]) -> Plan:
    """The plan less what is done; a vendor library that killed a launcher is not called again."""
    work = []
    for one in plan.work:
        entries = tuple(e for e in one.entries if (one.problem, e[1]) not in done)
        if entries:
            vendor = one.vendor and (one.problem, VENDOR) not in done
            again = one.again if any(name == one.again for _, name in entries) else ""
            work.append(replace(one, entries=entries, vendor=vendor, again=again))
    return replace(plan, work=tuple(work))


def whole_sizes(plan: Plan, found: dict[Key, Timing]) -> dict[Key, Timing]:
    """What was found less the times of sizes of which some are missing: finals are had together or not at all."""
    some_left = {
        work.problem for work in plan.work if any((work.problem, name) not in found for _, name in work.entries)
    }
    return {key: timing for key, timing in found.items() if key[0] not in some_left or not timing.samples_us}


def given_up(plan: Plan, attempts: int) -> dict[Key, Timing]:
    """What is left of a plan whose launchers died too often."""
    message = f"not run: {attempts} launchers died before its turn"
    keys = [(work.problem, name) for work in plan.work for _, name in work.entries]
    return {key: Timing(*key, Status.CRASHED, message=message) for key in keys}


def from_on(plan: Plan, work: int, name: str, *, itself: bool) -> Plan:
    """What a plan has behind an entry of a work; the entry too when ``itself``."""
    entries = plan.work[work].entries
    at = [other for _, other in entries].index(name) + (not itself)
    left = (replace(plan.work[work], entries=entries[at:]), *plan.work[work + 1 :])
    return replace(plan, work=tuple(one for one in left if one.entries))


def halves(plan: Plan) -> list[Plan]:
    """The plan in two of about half the entries each. The finals of a size are never parted, nor is one entry."""
    if plan.stage == SCREEN:
        apart = [replace(work, entries=(entry,)) for work in plan.work for entry in work.entries]
    else:
        apart = list(plan.work)
    if len(apart) < 2:
        return [plan]
    middle = len(apart) // 2
    return [replace(plan, work=joined(part)) for part in (apart[:middle], apart[middle:])]


def probes(plan: Plan, index: int) -> list[Plan]:
    """The finals of one work in halves of its entries and without the vendor library, to see which of them die."""
    work = plan.work[index]
    middle = len(work.entries) // 2
    parts = [part for part in (work.entries[:middle], work.entries[middle:]) if part]
    return [replace(plan, work=(replace(work, entries=part, vendor=False, again=""),)) for part in parts]


def joined(works: list[Work]) -> tuple[Work, ...]:
    """Works of one problem that follow each other as one."""
    found: list[Work] = []
    for work in works:
        if found and found[-1].problem == work.problem:
            found[-1] = replace(found[-1], entries=found[-1].entries + work.entries)
        else:
            found.append(work)
    return tuple(found)
