"""What a run says at its end: the time of its stages, what it did, and how quiet the measurement was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from gemm_tuner.measure.phases import PARTS, PHASES
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.system.terminal_table import Column, print_table

SHOWN_S = 0.05  # the least time that a table of tenths shows


def stage_table(console: Console, log: RunLog) -> None:
    """Prints seconds of wall time: of each stage, of the parts outside the stages as far as they show, of the command,
    and, which is none of its parts, from the first screening to the last verdict."""
    parts = [(f"- {name}", seconds) for name, seconds in log.outside_seconds.items() if seconds >= SHOWN_S]
    outside = ("outside the stages", sum(log.outside_seconds.values()))
    times = [*log.stage_seconds.items(), outside, *parts, ("in all", log.accounted_s)]
    span_s = log.between_s("screen", "check")
    if span_s is not None:
        times.append(("from first screening to last verdict", span_s))
    rows = [(name, f"{seconds:.1f}") for name, seconds in times]
    print_table(console, "Time per stage", (Column("stage"), Column("s", is_number=True)), rows)


def start_table(console: Console, starts: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints the mean seconds of each phase of the profiler starts of each stage, and of its parts
    (``measure.phases``). Starts of finals run side by side, so their sum is more than the stage's wall time."""
    names = [
        (name, f"- {name}" if name != phase else name) for phase in PHASES for name in (phase, *PARTS.get(phase, ()))
    ]
    rows = [
        (title, *(_mean_s(of, name) for of in starts.values()))
        for name, title in names
        if any(name in of["seconds"] for of in starts.values())
    ]
    columns = [Column(f"{stage} ({of['number']})", is_number=True) for stage, of in starts.items()]
    print_table(console, "Mean seconds of a start", [Column("phase"), *columns], rows)


def _mean_s(starts: Mapping[str, Any], name: str) -> str:
    """The mean of a phase or part over the starts of a stage, as text; "" if they do not have it."""
    return f"{starts['seconds'][name] / starts['number']:.2f}" if name in starts["seconds"] else ""


def summary_line(verified: int, sizes: int, seconds: float, counts: Mapping[str, int]) -> str:
    """One line about what the run did; the number of compilations under the profiler must be 0."""
    facts = ", ".join(f"{number} {fact}" for fact, number in counts.items())
    done = f"sizes with a verified configuration: {verified} of {sizes}"
    return f"{done} in {seconds:.1f} s" + (f" ({facts})" if facts else "")


def notes(found: Mapping[str, Any]) -> list[str]:
    """Lines with information about the measurement: noise, clocks, utilization of the compile pool."""
    lines = []
    if "noise_pct" in found:
        typical, worst = found["noise_pct"]
        lines.append(
            f"noise floor: one kernel as two contenders differs by {typical:.2f} % (median), {worst:.2f} % (most)"
        )
    for title, state in found.get("gpu", {}).items():
        clock, power, heat = (state[name] for name in ("sm_clock_mhz", "power_w", "temperature_c"))
        slow = ", THROTTLED" if state["throttled"] else ""
        lines.append(
            f"GPU in the {title}: {clock[1]:.0f} MHz ({clock[0]:.0f} to {clock[2]:.0f}), {power[1]:.0f} W, "
            f"{heat[2]:.0f} C at most{slow}"
        )
    if "compile_pool_idle_pct" in found:
        lines.append(f"the compile pool was idle for {found['compile_pool_idle_pct']:.0f} % of the time until finals")
    for key, why in found.get("older_not_run", {}).items():
        lines.append(f"the older configuration of {key} could not run: {why}")
    if "updated" in found:
        counts, lost = found["updated"], len(found.get("older_not_run", {}))
        others = f", {lost} replaced because they failed" if lost else ""
        beaten = counts["replaced"] - lost
        lines.append(f"older configurations: {counts['kept']} kept, {beaten} replaced by clearly faster ones{others}")
    return lines
