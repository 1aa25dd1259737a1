"""``tune_gemm.py compare A B``: two results side by side, with an exit status for CI."""

from __future__ import annotations

import json
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from gemm_tuner.commands import Consoles
from gemm_tuner.commands.percent import percent
from gemm_tuner.compare import judge, sides
from gemm_tuner.compare.judge import Compared, Comparison, Verdict
from gemm_tuner.errors import EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.parser import Parser
from gemm_tuner.problem import GemmProblem
from gemm_tuner.problem_keys import problem_row

DESCRIPTION = """\
Compares two results files, or two runs' folders, size by size: B's time over A's, with the interval that the noise
leaves open. Of two folders that interval is a bootstrap over the samples of the finals; else it is from the rows'
20th and 80th percentiles. A size is slower or faster when the interval lies wholly on one side of 1.
"""
EXAMPLES = """\
examples:
  two files, or two runs
    tune_gemm.py compare old/tuned.yaml new/tuned.yaml
    tune_gemm.py compare results/20260131-120000 results/20260201-120000
  for CI
    tune_gemm.py compare baseline.yaml tuned.yaml --tolerance 5% --json

exit status: 0 no size is slower by more than the tolerance; 1 some size is, or has no config any more; 2 the command
line or a file is wrong.
"""
_COLOURS = {Verdict.SLOWER: "red", Verdict.LOST: "red", Verdict.FASTER: "green", Verdict.FOUND: "green"}


def build_parser() -> Parser:
    parser = Parser("compare", DESCRIPTION, EXAMPLES)
    parser.add_argument("a", metavar="A", type=Path, help="what was before: a results file or a run's folder")
    parser.add_argument("b", metavar="B", type=Path, help="what is now")
    parser.add_argument("--tolerance", metavar="PCT", type=percent, default=0.02,
                        help="how much slower a size may become, such as 5%% (default: 2%%)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(words: list[str], shown: Consoles) -> int:
    """Raises UserError for what is no results file and no run's folder."""
    arguments = build_parser().parse(words)
    comparison = judge.compare(sides.load(arguments.a), sides.load(arguments.b), arguments.tolerance)
    for warning in comparison.warnings:
        shown.log.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)
    if arguments.json:
        print(json.dumps(document(comparison, arguments.tolerance), indent=1))
    else:
        shown.out.print(table_of(comparison))
        for line in closing(comparison, arguments.tolerance):
            shown.out.print(line, markup=False, highlight=False, soft_wrap=True)
    return EXIT_UNVERIFIED if comparison.regressions else EXIT_OK


def table_of(comparison: Comparison) -> Table:
    """One row a size that both have."""
    table = Table(box=None, pad_edge=False, title="B against A", title_justify="left")
    table.add_column("size", no_wrap=True)
    for name in ("A us", "B us", "B / A", "interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("configuration", overflow="fold")
    for one in comparison.compared:
        colour = _COLOURS.get(one.verdict, "")
        verdict = one.verdict.value + (" (regression)" if one.regression else "")
        table.add_row(
            one.problem.key, *_cells(one), f"[{colour}]{verdict}" if colour else verdict, escape(_configs(one))
        )
    return table


def _cells(one: Compared) -> list[str]:
    times = [f"{side.median_us:.2f}" if side and side.median_us else "-" for side in (one.a, one.b)]
    ratio = f"{one.ratio:.3f}" if one.ratio is not None else "-"
    return [*times, ratio, f"{one.interval[0]:.3f} to {one.interval[1]:.3f}" if one.interval else "-"]


def _configs(one: Compared) -> str:
    if one.why:
        return one.why
    assert one.a is not None and one.b is not None
    return f"{one.a.config} -> {one.b.config}" if one.config_changed else one.a.config


def closing(comparison: Comparison, tolerance: float) -> list[str]:
    """What a person reads last."""
    counts = {verdict: sum(one.verdict == verdict for one in comparison.compared) for verdict in Verdict}
    told = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    changed = sum(one.config_changed for one in comparison.compared)
    mean = comparison.geometric_mean()
    lines = [f"sizes of both: {told or 'none'}; {changed} with another configuration"]
    lines += [f"B / A, geometric mean: {mean:.3f}"] if mean is not None else []
    for name, only in (("A", comparison.only_a), ("B", comparison.only_b)):
        lines += [f"only in {name}: {', '.join(problem.key for problem in only)}"] if only else []
    if counts[Verdict.UNCLEAR]:
        lines.append("unclear: the noise is larger than the difference; time more calls, --iters 100")
    lines.append(f"regressions beyond {tolerance * 100:g} %: {comparison.regressions}")
    return lines


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


def _named(problem: GemmProblem) -> dict[str, object]:
    return {"key": problem.key, **problem_row(problem)}


def _entry(one: Compared) -> dict[str, object]:
    return {
        **_named(one.problem),
        "verdict": one.verdict.value,
        "regression": one.regression,
        "ratio": one.ratio,
        "interval": one.interval,
        "noise": one.noise,
        "a_us": one.a and one.a.median_us,
        "b_us": one.b and one.b.median_us,
        "a_config": one.a and one.a.config,
        "b_config": one.b and one.b.config,
        "why": one.why,
    }
