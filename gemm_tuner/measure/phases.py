"""Where the time of a profiler's start goes: its own start, waiting, preparing, launching, and its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gemm_tuner.launch.journal import (
    ADMITTED,
    IMPORTED,
    LAUNCHED,
    LAUNCHING,
    OPENED,
    OPENING,
    PREPARING,
    READY,
    TURN,
    Event,
    Reached,
    Spent,
)  # fmt: skip

START, WAIT, OPEN, PREPARE, LAUNCH, REPORT = PHASES = ("start", "wait", "open", "prepare", "launch", "report")
# What ends with each milestone; what is left after the last one is the report.
MILESTONES = {IMPORTED: START, ADMITTED: WAIT, OPENED: OPEN, TURN: WAIT, READY: PREPARE, LAUNCHED: LAUNCH}
# Of the report: the profiler's work after the last kernel, the conversion to text, reading that.
REPORTING = WRITING, CONVERTING, READING = ("profiler", "conversion", "reading")
PARTS = {OPEN: OPENING, PREPARE: PREPARING, LAUNCH: LAUNCHING, REPORT: REPORTING}


def phases_of(
    journal: Iterable[Event], began_unix_s: float, profiled_unix_s: float, converted_unix_s: float, ended_unix_s: float
) -> dict[str, float]:
    """Seconds of each phase of a start that reached all of them, in order, and of the PARTS of phases; none of another,
    whose report says nothing.

    start: the profiler, Python and the imports. wait: until no other start times, and then for the turn. open: the
    GPU's context, the vendor library, kernels. prepare: until nobody opens the GPU and clocks are up. launch: operands
    and all calls. report: what the profiler writes afterwards, and reading it. profiled, converted, ended: when the
    profiler had ended, what it wrote was text, and that was read.
    """
    events = list(journal)
    at = {event.milestone: event.unix_s for event in events if isinstance(event, Reached)}
    if LAUNCHED not in at:
        return {}
    seconds, last = dict.fromkeys(PHASES, 0.0), began_unix_s
    for milestone, phase in MILESTONES.items():
        reached = at.get(milestone, last)
        seconds[phase] += max(0.0, reached - last)
        last = reached
    seconds[REPORT] = max(0.0, ended_unix_s - last)
    for part, until in zip(REPORTING, (profiled_unix_s, converted_unix_s, ended_unix_s), strict=True):
        seconds[part], last = max(0.0, until - last), max(last, until)
    return seconds | {event.part: event.seconds for event in events if isinstance(event, Spent)}


def added(*parts: Mapping[str, float]) -> dict[str, float]:
    """The sums by phase."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}
