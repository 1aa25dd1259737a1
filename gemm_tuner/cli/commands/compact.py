"""``tune_gemm.py compact``: the fewest configurations that serve all tuned sizes within a given loss."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from rich.console import Console

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import one_of, output_file, percent
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import OUTPUT
from gemm_tuner.core.errors import EXIT_OK, UserError
from gemm_tuner.core.labels import label
from gemm_tuner.export.gemm.compact import plan, tuned
from gemm_tuner.export.gemm.compact.cover import EXACT
from gemm_tuner.export.gemm.compact.plan import BOUNDARIES, POW2, Compacted, Group, Range
from gemm_tuner.pipeline.show import config_name
from gemm_tuner.store import run_record
from gemm_tuner.store.results_file import require_none_lost
from gemm_tuner.system import program
from gemm_tuner.system.documents import write_text_atomically
from gemm_tuner.system.terminal_table import Column, print_line, print_table

DESCRIPTION = """\
Finds the smallest set of configs with which every tuned size is at most so much slower than with its own, out of all
that the run timed, and the ranges of M that each serves. A config serves a size only where the run timed it for that
size.
"""
EXAMPLES = """\
examples:
  tune_gemm.py compact results/20260131-120000-1a2b
  tune_gemm.py compact results/20260131-120000-1a2b --loss 5% -o compact.yaml
  time what it wrote, and check it
    tune_gemm.py --gemm_size_file compact.yaml --benchmark
    tune_gemm.py --gemm_size_file compact.yaml --compare_wo_tuning

exit status: 0 done; 2 the command line or a file is wrong, or the tables of the run are missing; 3 the file cannot be
written.
"""


def add_flags(parser: Parser) -> None:
    parser.add_argument("run", metavar="RESULTS_OR_RUN", type=Path,
                        help="a run's folder, or a results file that it wrote")  # fmt: skip
    parser.add_argument("--loss", metavar="PCT", type=percent, default=2.0,
                        help="by how much a size may become slower, such as 5%% or 5 (default: 2%%)")  # fmt: skip
    parser.add_argument("--boundaries", metavar="KIND", type=one_of(BOUNDARIES), default=POW2, help="where a range of "
                        "M ends: pow2, a power of two; learned, where times cross (default: %(default)s)")  # fmt: skip
    parser.add_argument(*OUTPUT, metavar="FILE", type=output_file, help="a results file of the served sizes")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    """Raises UserError for a run without tables, EnvironmentFault for a file that cannot be written."""
    run = tuned.load(arguments.run)
    loss = arguments.loss / 100
    compacted = plan.compact(run, loss, arguments.boundaries)
    if arguments.output:
        if arguments.output.resolve() in own_results(arguments.run):
            raise UserError(f"{arguments.output} holds the rows of the run itself", where="--output")
        require_none_lost(arguments.output, [size.problem for size in run.sizes])
        write_text_atomically(arguments.output, plan.results_text(compacted, run, loss, arguments.output))
    if arguments.json:
        print(json.dumps(document(compacted, loss), indent=1))
    else:
        show_table(shown.out, compacted)
        for line in closing(shown.out, compacted, loss):
            print_line(shown.out, line)
    if arguments.output:
        file = shlex.quote(str(arguments.output))
        for line in (f"written: {arguments.output}", f"on a GPU: {program.name()} --gemm_size_file {file} --benchmark"):
            print_line(shown.log, line)
    return EXIT_OK


def own_results(run: Path) -> tuple[Path, ...]:
    """The results file of a run's folder, or the file itself."""
    if not run.is_dir():
        return (run.resolve(),)
    return ((run / "tuned.yaml").resolve(), Path(run_record.read(run).results_file).resolve())


def show_table(console: Console, compacted: Compacted) -> None:
    """Prints one row per range of M: its configuration, the tuned values of M in it, and the loss there."""
    columns = (
        Column("sizes", wraps=True),
        Column("M"),
        Column("tuned at M", wraps=True),
        Column("worst loss there", is_number=True),
        Column("configuration", wraps=True),
    )
    rows = []
    for group in compacted.groups:
        for one in group.ranges:
            worst = max(size.loss(one.name) for size in one.sizes)
            name = short_group(group) if console.is_terminal else group.label
            cells = (span(one), tuned_at(one), f"{worst * 100:.2f} %", config_name(console, group.problem, one.name))
            rows.append((name, *cells))
    print_table(console, "Ranges of M", columns, rows)


def short_group(group: Group) -> str:
    """The label of a group: that of a size without M."""
    problem = group.problem
    batch = f"{problem.batch}x" if problem.batch > 1 else ""
    return f"{batch}N={problem.n} K={problem.k} {label(problem).partition(' ')[2]}"


def span(one: Range) -> str:
    """The range of M as text."""
    if one.high is None:
        return "any" if one.low == 1 else f"from {one.low}"
    return f"{one.low} to {one.high}"


def tuned_at(one: Range) -> str:
    """The tuned M of a range."""
    tuned = [str(size.problem.m) for size in one.sizes]
    return f"{tuned[0]} only" if len(tuned) == 1 else ", ".join(tuned)


def closing(console: Console, compacted: Compacted, loss: float) -> list[str]:
    """The last lines: what the losses refer to, and what was not measured."""
    losses = [serving.loss for serving in compacted.servings]
    proof = "no smaller set exists" if compacted.method == EXACT else "greedy; a smaller set may exist"
    lines = [
        f"{len(compacted.names)} configs serve {len(losses)} tuned sizes within {loss * 100:g} %, where there were "
        f"{compacted.configs_before} ({proof})",
        f"loss over the tuned sizes: mean {sum(losses) / len(losses) * 100:.2f} %, worst {max(losses) * 100:.2f} %",
        "at other M of a range nothing was timed: tune more M to know",
    ]
    alone = [group.problem.m for group in compacted.groups if sum(len(one.sizes) for one in group.ranges) == 1]
    if alone:
        at = f"M = {alone[0]}" if len(set(alone)) == 1 else "one M"
        lines.append(f"{len(alone)} of {len(compacted.groups)} pairs of N and K were tuned at {at} only")
    lines.append("how many sizes each serves:")
    names = [(name, config_name(console, compacted.groups[0].problem, name)) for name in compacted.names]
    return lines + [f"  {shown}: {len(compacted.served_by(name))}" for name, shown in names]


def document(compacted: Compacted, loss: float) -> dict[str, object]:
    return {
        "loss": loss,
        "method": compacted.method,
        "configs_before": compacted.configs_before,
        "configs": [{"name": name, "sizes": len(compacted.served_by(name))} for name in compacted.names],
        "sizes": [
            {
                "key": serving.size.problem.key,
                "config": serving.name,
                "time_us": serving.size.timed[serving.name].time_us,
                "stage": serving.size.timed[serving.name].stage,
                "tuned": serving.size.chosen,
                "tuned_us": serving.size.best_us,
                "loss": serving.loss,
            }
            for serving in compacted.servings
        ],
        "groups": [
            {
                "sizes": group.label,
                "N": group.problem.n,
                "K": group.problem.k,
                "class": group.problem.signature,
                "ranges": [
                    {"low": one.low, "high": one.high, "config": one.name, "tuned_m": [s.problem.m for s in one.sizes]}
                    for one in group.ranges
                ],
            }
            for group in compacted.groups
        ],
    }
