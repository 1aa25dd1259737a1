"""``tune_gemm.py compare A B``: compares two results, with an exit status for CI."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import percent
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import add_document_flags, put_document
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.core.labels import NAMED, some
from gemm_tuner.core.records import Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline.show import config_name, size_names, with_common
from gemm_tuner.report.compare import judge, sides
from gemm_tuner.report.compare.judge import Compared, ComparedVerdict, Comparison
from gemm_tuner.system.terminal_table import Column, print_line, print_table

DESCRIPTION = """\
Compares the times of two results files, or two runs' folders, size by size (whether results are right is said by
the flags --compare and --compare_wo_tuning): B's time over A's, with the interval that the noise
leaves open. Where both were timed in several processes that interval is over processes; else it is from the rows'
20th and 80th percentiles. A size is slower or faster when the interval lies wholly on one side of 1.
"""
EXAMPLES = """\
examples:
  two files, or two runs
    tune_gemm.py compare old/tuned.yaml new/tuned.yaml
    tune_gemm.py compare results/20260131-120000 results/20260201-120000
  for CI
    tune_gemm.py compare baseline.yaml tuned.yaml --tolerance 5% --json

exit status: 0 every size of A was compared and none is slower by more than the tolerance; 1 some size is slower, has no
config any more, is missing in B or cannot be compared (a prediction), or there is no size in common; 2 the command line
or a file is wrong. With --allow_missing sizes may be missing, as long as one can be compared.
"""
_COLOURS = {
    ComparedVerdict.SLOWER: "red",
    ComparedVerdict.LOST: "red",
    ComparedVerdict.FASTER: "green",
    ComparedVerdict.FOUND: "green",
}


def add_flags(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", type=Path, help="what was before: a results file or a run's folder")
    parser.add_argument("b", metavar="B", type=Path, help="what is now")
    parser.add_argument("--tolerance", metavar="PCT", type=percent, default=2.0,
                        help="how much slower a size may become, such as 5%% or 5 (default: 2%%)")  # fmt: skip
    parser.add_argument("--allow_missing", action="store_true", help="accept that sizes of A are missing in B, or have "
                        "no time there that can be compared")  # fmt: skip
    add_document_flags(parser)


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    """Runs the command. Raises UserError for a path that is neither a results file nor a run's folder."""
    tolerance = arguments.tolerance / 100
    comparison = judge.compare(sides.load(arguments.a), sides.load(arguments.b), tolerance)
    for warning in comparison.warnings:
        print_line(shown.log, f"warning: {warning}")
    faults = comparison.faults(allow_missing=arguments.allow_missing)
    put_document({**document(comparison, tolerance), "faults": faults}, arguments)
    if not arguments.json:
        show_table(shown.out, comparison)
        for line in closing(shown.out, comparison, tolerance, faults):
            print_line(shown.out, line)
    return EXIT_UNVERIFIED if faults else EXIT_OK


def show_table(console: Console, comparison: Comparison) -> None:
    """Prints one row per size of both results. On a terminal, changed configurations and reasons are in a second
    table."""
    if not comparison.compared:
        return
    named = size_names(console, [one.problem for one in comparison.compared])
    columns = (
        Column("size", wraps=True),
        Column("for"),
        Column("A us", is_number=True),
        Column("B us", is_number=True),
        Column("B / A", is_number=True),
        Column("interval", rank=1),
        Column("verdict", wraps=True),
        *(() if console.is_terminal else (Column("configuration"),)),
    )
    rows: list[list[str | Text]] = []
    cells: list[str | Text]
    for one in comparison.compared:
        verdict = one.verdict.value + (" (regression)" if one.regression else "")
        cells = [named.of[one.problem], one.consumer, *_cells(one), Text(verdict, style=_COLOURS.get(one.verdict, ""))]
        rows.append(cells if console.is_terminal else [*cells, _configs(console, one)])
    title = "B against A, predicted" if comparison.all_predicted else "B against A"
    print_table(console, with_common(title, named), columns, rows)
    changes = [
        (named.of[one.problem], one.consumer, _configs(console, one))
        for one in comparison.compared
        if one.why or one.config_changed
    ]
    if console.is_terminal and changes:
        print_table(
            console,
            "Changes",
            (Column("size", wraps=True), Column("for"), Column("configuration", wraps=True)),
            changes,
        )


def _cells(one: Compared) -> list[str]:
    times = [f"{side.median_us:.2f}" if side and side.median_us else "" for side in (one.a, one.b)]
    ratio = f"{one.ratio:.3f}" if one.ratio is not None else ""
    return [*times, ratio, f"{one.interval[0]:.3f} to {one.interval[1]:.3f}" if one.interval else ""]


def _configs(console: Console, one: Compared) -> str:
    if one.why:
        return one.why
    assert one.a is not None and one.b is not None
    before, after = (config_name(console, one.problem, side.config) for side in (one.a, one.b))
    return f"{before} -> {after}" if one.config_changed else before


def closing(console: Console, comparison: Comparison, tolerance: float, faults: list[str]) -> list[str]:
    """The last lines: counts, geometric mean, sizes of only one side, faults."""
    counts = {verdict: sum(one.verdict == verdict for one in comparison.compared) for verdict in ComparedVerdict}
    totals = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    changed = sum(one.config_changed for one in comparison.compared)
    mean = comparison.geometric_mean()
    sizes = len({one.problem for one in comparison.compared})
    compared = f"{sizes}; compared: {totals}; {changed} with another configuration" if sizes else "none"
    lines = [f"sizes of both: {compared}"]
    lines += [f"B / A, geometric mean: {mean:.3f}"] if mean is not None else []
    if comparison.predicted:
        lines.append(f"{_shares(comparison)} predictions of the model: nothing was timed")
    for name, only in (("A", comparison.only_a), ("B", comparison.only_b)):
        if only:
            named = size_names(console, only)
            rest = "; --json names all" if len(only) > NAMED else ""
            lines.append(with_common(f"only in {name} ({len(only)})", named) + f": {some([*named.of.values()])}{rest}")
    if counts[ComparedVerdict.UNCLEAR]:
        lines.append(
            "unclear: the noise is larger than the difference; time both in one run: --benchmark, or tune with --update"
        )
    lines.append(f"regressions beyond {tolerance * 100:g} %: {comparison.regressions}")
    return lines + ([f"failed: {', '.join(faults)}"] if faults else [])


def _shares(comparison: Comparison) -> str:
    """How many of the compared rows are predictions, in words."""
    predicted, rows = comparison.predicted, sum(one.ratio is not None for one in comparison.compared)
    return "all times are" if comparison.all_predicted else f"both times of {predicted} of {rows} rows are"


def document(comparison: Comparison, tolerance: float) -> dict[str, object]:
    return {
        "tolerance": tolerance,
        "regressions": comparison.regressions,
        "geometric_mean": comparison.geometric_mean(),
        "warnings": list(comparison.warnings),
        "sizes": [_entry(one) for one in comparison.compared],
        "only_a": [_named(problem) for problem in comparison.only_a],
        "only_b": [_named(problem) for problem in comparison.only_b],
    }


def _named(problem: Problem) -> dict[str, object]:
    return {"key": problem.key, **workload_of(problem.kind).row(problem)}


def _entry(one: Compared) -> dict[str, object]:
    return {
        **_named(one.problem),
        "consumer": one.consumer,
        "verdict": one.verdict.value,
        "regression": one.regression,
        "ratio": one.ratio,
        "interval": one.interval,
        "noise": one.noise,
        "predicted": one.is_predicted,
        "a_us": one.a and one.a.median_us,
        "b_us": one.b and one.b.median_us,
        "a_config": one.a and one.a.config,
        "b_config": one.b and one.b.config,
        "why": one.why,
    }
