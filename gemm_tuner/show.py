"""What a person reads on the terminal: the funnel, the results, the time that each stage took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gemm_tuner.prune import FunnelRow
from gemm_tuner.records import Choice, GemmProblem, Verdict
from gemm_tuner.session import Session

# Rules that the funnel on one line names.
MOST_CUTTING = 3


def funnel(console: Console, title: str, total: int, rows: Iterable[FunnelRow], *, all_rules: bool = False) -> None:
    """The rules in order, how many configurations each cut and how many remain."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column, justify in (("rule", "left"), ("cut", "right"), ("remain", "right"), ("why", "left")):
        table.add_column(column, justify=justify, no_wrap=column != "why")  # type: ignore[arg-type]
    table.add_row("(all of the space)", "", f"{total}", "")
    for row in rows:
        if row.cut or all_rules:
            table.add_row(row.rule, f"{row.cut}", f"{row.remain}", escape(f"{row.why} [{row.kind.value}]"))
    console.print(table)


def funnel_line(problem: GemmProblem, total: int, rows: Sequence[FunnelRow]) -> str:
    """The funnel of one size on one line: the rules that cut most, and how many others there are."""
    cutting = sorted((row for row in rows if row.cut), key=lambda row: row.cut, reverse=True)
    cuts = [f"{row.rule} -{row.cut}" for row in cutting[:MOST_CUTTING]]
    others = cutting[MOST_CUTTING:]
    if others:
        cuts.append(f"{len(others)} other rules -{sum(row.cut for row in others)}; --verbose names them")
    remain = rows[-1].remain if rows else total
    return f"{problem.key}: {total} configurations, {remain} kept ({', '.join(cuts) or 'no rule cut any'})"


def results_table(console: Console, session: Session) -> None:
    """One row a size: configuration, time, TFLOP/s, ratio to the vendor library, error."""
    predicted = session.setting.source == "predicted"
    table = Table(box=None, pad_edge=False, title="Results", title_justify="left")
    table.add_column("size", no_wrap=True)
    table.add_column("configuration", overflow="fold")
    for name in ("predicted us" if predicted else "us", "TFLOP/s", "of roofline", "vs torch.mm", "error/bound"):
        table.add_column(name, justify="right")
    for entry in session.settings.entries:
        choice = session.choices.get(entry.problem)
        if choice is None:
            reason = session.failures.get(entry.problem, "not reached")
            table.add_row(entry.problem.key, f"[red]{escape(reason)}", *[""] * 5)
        else:
            table.add_row(*choice_cells(choice))
    console.print(table)


def choice_cells(choice: Choice) -> list[str]:
    ratio = f"{choice.vendor_ratio:.3f}" if choice.vendor_ratio else "-"
    return [
        choice.problem.key,
        choice.config.name + (" (tie)" if choice.tie else ""),
        f"{choice.median_us:.2f}",
        "-" if choice.source == "predicted" else f"{choice.tflops:.1f}",
        "-" if choice.source == "predicted" else f"{choice.roofline_pct:.0f} %",
        ratio,
        f"{choice.error_over_bound:.3f}",
    ]


def verdicts_table(console: Console, rows: Iterable[tuple[GemmProblem, str, list[Verdict]]]) -> None:
    """One row a check: which size, how far from the bound, and where when wrong."""
    table = Table(box=None, pad_edge=False, title="Checks", title_justify="left")
    for name in ("size", "configuration", "checked at", "verdict", "max error", "error/bound", "where"):
        table.add_column(name, overflow="fold")
    for problem, name, verdicts in rows:
        if not verdicts:
            table.add_row(problem.key, name, "-", "[red]could not run", "", "", "")
        for v in verdicts:
            batch = f"{v.problem.batch} of " if v.problem.batch > 1 else ""
            at = f"{batch}{v.problem.m} x {v.problem.n} x {v.problem.k}"
            verdict = "right" if v.ok else "[red]wrong"
            table.add_row(
                problem.key, name, at, verdict, f"{v.max_abs_error:.3g}", f"{v.error_over_bound:.3g}", escape(v.message)
            )
    console.print(table)


def stage_table(console: Console, session: Session) -> None:
    """Seconds of wall time a stage."""
    table = Table(box=None, pad_edge=False, title="Time per stage", title_justify="left")
    table.add_column("stage")
    table.add_column("s", justify="right")
    for name, seconds in session.stage_seconds.items():
        table.add_row(name, f"{seconds:.1f}")
    console.print(table)


def summary_line(session: Session, seconds: float) -> str:
    """What the run did, on one line; the compile count under the profiler must be 0."""
    facts = ", ".join(f"{number} {fact}" for fact, number in session.facts.items())
    done = f"sizes with a verified configuration: {len(session.choices)} of {len(session.settings.entries)}"
    return f"{done} in {seconds:.1f} s" + (f" ({facts})" if facts else "")


def notes(session: Session) -> list[str]:
    """What a reader of the times should know: the noise, the clocks, how busy the compile pool was."""
    found = session.notes
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
        lines.append(f"the compile pool was idle for {found['compile_pool_idle_pct']:.0f} % of the search")
    if "updated" in found:
        counts = found["updated"]
        lines.append(
            f"older configurations: {counts['kept']} kept, {counts['replaced']} replaced by clearly faster ones"
        )
    return lines
