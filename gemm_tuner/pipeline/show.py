"""Terminal output: funnels, results, and times of stages.

On a terminal, sizes and configurations are abbreviated and tables fit its width; piped output has full names and all
columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.labels import Labels, label, labels, titled
from gemm_tuner.core.records import Problem, Status, Verdict, Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline import rivals
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.pipeline.run_results import RunResults
from gemm_tuner.space.prune import FunnelRow
from gemm_tuner.space.reasons import reason_lines
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system.terminal_table import Column, print_line, print_table

# Number of rules that the one-line funnel names.
MOST_CUTTING = 3
EXACT, EQUAL, INTERPRETED = "exact", "equal", "interp."
RIGHT = {None: "right", Verified.AGREED: "agrees", Verified.FALSE: "not checked"}


def funnel(
    console: Console, title: str, total: int, rows: Iterable[FunnelRow], *, all_rules: bool = False, why: bool = True
) -> None:
    """Prints the rules in order, with the number of configurations that each rejects and that remain.

    all_rules: include rules that reject none. why: always print the reasons, on several lines if necessary; otherwise
    only if they fit.
    """
    columns = (
        Column("rule"),
        Column("cut", is_number=True),
        Column("remain", is_number=True),
        Column("why", rank=0 if why else 1, wraps=True),
    )
    cells = [("(the whole space)", "", f"{total}", "")]
    for row in rows:
        if row.cut or all_rules:
            cells.append((row.rule, f"{row.cut}", f"{row.remain}", f"{row.why} [{row.kind.value}]"))
    left_out = print_table(console, title, columns, cells)
    say_left_out(console, left_out, "--verbose")


def funnel_line(console: Console, problem: Problem, total: int, rows: Sequence[FunnelRow]) -> None:
    """Prints the funnel of one size on one line: the number kept, and the rules that reject most, as many as fit."""
    cutting = sorted((row for row in rows if row.cut), key=lambda row: row.cut, reverse=True)
    remain = rows[-1].remain if rows else total
    begin = f"{size_name(console, problem)}: {remain} of {total} kept"
    lines = [begin + _cuts(cutting, count) for count in range(MOST_CUTTING, -1, -1)]
    fitting = (line for line in lines if not console.is_terminal or len(line) <= console.width)
    print_line(console, next(fitting, begin))


def _cuts(cutting: Sequence[FunnelRow], count: int) -> str:
    named = [f"{row.rule} -{row.cut}" for row in cutting[:count]]
    others = cutting[count:]
    if others:
        rules = f"{len(others)} {'other ' if named else ''}rule{'s' if len(others) > 1 else ''}"
        named.append(f"{rules} -{sum(row.cut for row in others)}")
    return f" ({', '.join(named) or 'no rule cut any'})"


def results_table(console: Console, options: RunOptions, environment: Environment, found: RunResults) -> None:
    """Prints the results of a run (``results``); with --verbose also all details of each size."""
    problems: list[Problem] = [entry.problem for entry in options.entries]
    title = titled("Results", environment.source, environment.device.name)
    failures = {problem: found.failures.get(problem, "not reached") for problem in problems}
    results(console, title, problems, found.choices, failures)
    if options.verbose:
        for problem in problems:
            if problem in found.choices:
                details(console, found.choices[problem])


def results(
    console: Console,
    title: str,
    problems: Sequence[Problem],
    choices: Mapping[Problem, Choice],
    failures: Mapping[Problem, str],
) -> None:
    """Prints one row per size: time, ratio to the vendor library, TFLOP/s, roofline, check (with how, if it was not on
    the GPU), configuration. Below are the reasons for sizes without a configuration, each with one such size."""
    named = size_names(console, problems)
    chosen = [choices[problem] for problem in problems if problem in choices]
    if chosen:
        predicted = any(choice.source == "predicted" for choice in chosen)
        columns = (
            Column("size", wraps=True),
            Column("predicted us" if predicted else "us", is_number=True),
            Column(f"vs {baseline_name(chosen[0])}", is_number=True, rank=1),
            Column("TFLOP/s", is_number=True, rank=2),
            Column("of roof", is_number=True, rank=3),
            Column("error/\nbound", is_number=True, rank=5),
            Column("checked"),
            Column("configuration", wraps=True),
            Column("tie", rank=4),
        )
        rows = [(named.of[choice.problem], *_choice_cells(console, choice)) for choice in chosen]
        left_out = print_table(console, with_common(title, named), columns, rows)
        say_left_out(console, left_out, "--verbose")
        for choice in chosen:
            for name, why in choice.overruled:
                line = f"{named.of[choice.problem]}: passed over {config_name(console, choice.problem, name)}: {why}"
                print_line(console, line)
            if beside := rivals.compared(choice):
                print_line(console, f"{named.of[choice.problem]}: {beside}")
        served_table(console, named, chosen)
    for line in reason_lines({named.of[one]: failures.get(one, "") for one in problems if one not in choices}):
        print_line(console, line, "red")


def baseline_name(choice: Choice) -> str:
    """The name of the baseline that was timed with the configurations."""
    return workload_of(choice.problem.kind).baseline_name


def served_table(console: Console, named: Labels, choices: Sequence[Choice]) -> None:
    """Prints one row per size and consumer: the time of the best configuration that it can launch, the time of its
    default relative to it, and its time relative to the size's winner."""
    columns = (
        Column("size", wraps=True),
        Column("for"),
        Column("predicted us" if any(choice.source == "predicted" for choice in choices) else "us", is_number=True),
        Column("default/\nus", is_number=True),
        Column("us/\nbest", is_number=True, rank=1),
        Column("checked"),
        Column("configuration", wraps=True),
    )
    rows = [
        (
            named.of[choice.problem],
            one.consumer,
            f"{one.time_us:.2f}",
            f"{one.default_ratio:.3f}" if one.default_ratio else "",
            f"{one.time_us / choice.median_us:.3f}",
            how_checked(console, one.verified),
            config_name(console, choice.problem, one.config.name),
        )
        for choice in choices
        for one in choice.served
    ]
    if rows:
        say_left_out(console, print_table(console, with_common("Served", named), columns, rows), "a wider terminal")


def with_common(title: str, named: Labels) -> str:
    """A table's title with the properties that all of its sizes have in common."""
    return f"{title}: {named.common}" if named.common else title


def say_left_out(console: Console, columns: Sequence[str], where: str) -> None:
    """Prints which columns do not fit the terminal."""
    if columns:
        print_line(console, f"no room for {', '.join(columns)}; {where} shows all", "dim")


def size_name(console: Console, problem: Problem) -> str:
    """The name of one size on this console."""
    return label(problem) if console.is_terminal else problem.key


def size_names(console: Console, problems: Sequence[Problem]) -> Labels:
    """The names of sizes on this console: short labels on a terminal, keys in piped output."""
    return labels(problems) if console.is_terminal else Labels("", {problem: problem.key for problem in problems})


def place(console: Console, path: Path) -> str:
    """A path for display: on a terminal relative to the current folder if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if console.is_terminal and path.is_relative_to(here) else path)


def config_name(console: Console, problem: Problem, name: str) -> str:
    """The name of a configuration of a size on this console."""
    return workload_of(problem.kind).short_config(name) if console.is_terminal else name


def how_checked(console: Console, verified: Verified) -> str:
    """How a result was checked, "" for a check on the GPU; short on a terminal."""
    if verified == Verified.TRUE:
        return ""
    return INTERPRETED if console.is_terminal and verified == Verified.INTERPRETED else verified.value


def _choice_cells(console: Console, choice: Choice) -> list[str]:
    measured = choice.source != "predicted"
    return [
        f"{choice.median_us:.2f}",
        f"{choice.vendor_ratio:.3f}" if choice.vendor_ratio else "",
        f"{choice.tflops:.1f}" if measured else "",
        f"{choice.roofline_pct:.0f} %" if measured else "",
        error_share(choice),
        how_checked(console, choice.verified),
        config_name(console, choice.problem, choice.config.name),
        "tie" if choice.tie else "",
    ]


def error_share(choice: Choice) -> str:
    """A table cell for error_over_bound, "" if nothing was compared. 0 is shown as EXACT (every element equals the
    rounded reference) or as EQUAL (that of other configurations), so that it does not look unchecked."""
    share = choice.error_over_bound
    if share != share or choice.verified is Verified.FALSE:
        return ""
    if share == 0:
        return EQUAL if choice.verified is Verified.AGREED else EXACT
    return "<0.001" if share < 0.0005 else f"{share:.3f}"


def details(console: Console, choice: Choice) -> None:
    """Prints all details of one size's choice, with full names."""
    measured = choice.source != "predicted"
    time = f"{choice.median_us:.2f} us{'' if measured else ' predicted'}"
    if choice.p20_us is not None and choice.p80_us is not None:
        time += f" (p20 {choice.p20_us:.2f}, p80 {choice.p80_us:.2f}, {choice.num_samples} samples)"
    lines = [choice.config.name, time]
    if measured:
        lines.append(f"{choice.tflops:.1f} TFLOP/s, {choice.roofline_pct:.0f} % of the roofline")
    if choice.vendor_us:
        lines.append(f"{baseline_name(choice)} {choice.vendor_us:.2f} us, {choice.vendor_ratio:.3f} times as long")
    if choice.verified is not Verified.FALSE:
        share = error_share(choice)
        of_bound = share if share in (EXACT, EQUAL) else f"{share} of the bound"
        lines.append(f"largest error {choice.max_abs_error:.3g}, {of_bound}")
    if choice.runner_up:
        gap = f", {choice.gap_pct:.2f} % slower" if choice.gap_pct is not None else ""
        lines.append(f"runner-up {choice.runner_up}{gap}{' (tie)' if choice.tie else ''}")
    print_line(console, choice.problem.key, "bold")
    for line in lines:
        print_line(console, f"  {line}")


def verdicts_table(
    console: Console, rows: Iterable[tuple[Problem, str, list[Verdict]]], why_not: Mapping[Problem, str]
) -> None:
    """Prints one row per check: the size, the error relative to the bound, and the wrong element. why_not: why sizes
    have no check."""
    rows = list(rows)
    named = size_names(console, [problem for problem, _, _ in rows])
    columns = (
        Column("size", wraps=True),
        Column("configuration", wraps=True),
        Column("checked at", wraps=True),
        Column("verdict"),
        Column("max error", is_number=True, rank=3),
        Column("error/\nbound", is_number=True, rank=2),
        Column("where", wraps=True),
    )
    cells: list[tuple[str | Text, ...]] = []
    for problem, name, verdicts in rows:
        begin = (named.of[problem], config_name(console, problem, name))
        if not verdicts:
            cells.append((*begin, "", Text("could not run", style="red"), "", "", why_not.get(problem, "")))
        for v in verdicts:
            verdict = Text(RIGHT[v.how]) if v.ok else Text("wrong", style="red")
            cells.append(
                (*begin, v.problem.shape, verdict, f"{v.max_abs_error:.3g}", f"{v.error_over_bound:.3g}", v.message)
            )
    print_table(console, with_common("Checks", named), columns, cells)


def compiled_table(console: Console, state: SizeState) -> None:
    """What compiling one size's configurations gave, a row each in the order of the space."""
    columns = (
        Column("configuration", wraps=True),
        Column("status"),
        Column("registers", is_number=True),
        Column("spills", is_number=True, rank=1),
        Column("shared bytes", is_number=True),
        Column("s", is_number=True, rank=2),
        Column("why", rank=3, wraps=True),
    )
    numbers = {"registers": ".0f", "spills": ".0f", "shared_bytes": ".0f", "compile_s": ".2f"}
    cells: list[tuple[str | Text, ...]] = []
    for name in state.kept:
        row = state.rows.get(name, {})
        status = str(row.get("status", ""))
        shown = Text(status, style="" if status == Status.OK.value else "red")
        counts = [format(row[key], form) if row.get(key) is not None else "" for key, form in numbers.items()]
        message = " ".join(str(row.get("message", "")).split()) if status != Status.OK.value else ""
        cells.append((config_name(console, state.problem, name), shown, *counts, message))
    fitting = len(state.named(Status.OK))
    print_table(
        console, f"{size_name(console, state.problem)}: {fitting} of {len(state.kept)} compile and fit", columns, cells
    )
