"""Where the time of a profiler's start goes: its own start, waiting, preparing, launching, and its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gemm_tuner.launch.journal import IMPORTED, LAUNCHED, READY, TURN, Event, Reached

# What ends with each milestone; what is left after the last one is the profiler's report and its conversion.
PHASES = {IMPORTED: "start", TURN: "wait", READY: "prepare", LAUNCHED: "launch"}
REPORT = "report"


def phases_of(journal: Iterable[Event], began_unix_s: float, ended_unix_s: float) -> dict[str, float]:
    """Seconds of each phase of a start that reached all of them, in order; none of another, whose report says nothing.

    start: the profiler, Python and the imports. wait: for the GPU, which another start uses. prepare: the GPU's
    context, kernels and operands. launch: all calls. report: what the profiler writes afterwards, and reading it.
    """
    at = {event.milestone: event.unix_s for event in journal if isinstance(event, Reached)}
    if LAUNCHED not in at:
        return {}
    seconds, last = {}, began_unix_s
    for milestone, phase in PHASES.items():
        reached = at.get(milestone, last)
        seconds[phase], last = max(0.0, reached - last), reached
    return {**seconds, REPORT: max(0.0, ended_unix_s - last)}


def added(*parts: Mapping[str, float]) -> dict[str, float]:
    """The sums by phase."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}
