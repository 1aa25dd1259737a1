"""``tune_gemm.py compact``: the fewest configs that serve all tuned sizes within a loss."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from gemm_tuner.commands import Consoles
from gemm_tuner.commands.percent import percent
from gemm_tuner.compact import plan, tuned
from gemm_tuner.compact.cover import EXACT
from gemm_tuner.compact.plan import Compacted
from gemm_tuner.compact.ranges import BOUNDARIES, POW2, Range
from gemm_tuner.documents import write_text_atomically
from gemm_tuner.errors import EXIT_OK
from gemm_tuner.flag_types import one_of
from gemm_tuner.parser import Parser

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


def build_parser() -> Parser:
    parser = Parser("compact", DESCRIPTION, EXAMPLES)
    parser.add_argument("run", metavar="RESULTS_OR_RUN", type=Path,
                        help="a run's folder, or a results file with configs/ beside it")  # fmt: skip
    parser.add_argument("--loss", metavar="PCT", type=percent, default=0.02,
                        help="by how much a size may become slower, such as 5%% (default: 2%%)")  # fmt: skip
    parser.add_argument("--boundaries", metavar="KIND", type=one_of(BOUNDARIES), default=POW2, help="where a range of "
                        "M ends: pow2, a power of two; learned, where times cross (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="a results file of the served sizes")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(words: list[str], shown: Consoles) -> int:
    """Raises UserError for a run without tables, EnvironmentFault for a file that cannot be written."""
    arguments = build_parser().parse(words)
    run = tuned.load(arguments.run)
    compacted = plan.compact(run, arguments.loss, arguments.boundaries)
    if arguments.output:
        write_text_atomically(arguments.output, plan.results_text(compacted, run, arguments.loss, arguments.output))
    if arguments.json:
        print(json.dumps(document(compacted, arguments.loss), indent=1))
    else:
        shown.out.print(table_of(compacted))
        for line in closing(compacted, arguments.loss):
            shown.out.print(line, markup=False, highlight=False, soft_wrap=True)
    if arguments.output:
        file = shlex.quote(str(arguments.output))
        for line in (f"written: {arguments.output}", f"on a GPU: tune_gemm.py --gemm_size_file {file} --benchmark"):
            shown.log.print(line, markup=False, highlight=False, soft_wrap=True)
    return EXIT_OK


def table_of(compacted: Compacted) -> Table:
    """One row a range of M: which config serves it, and what that costs."""
    table = Table(box=None, pad_edge=False, title="Ranges of M", title_justify="left")
    table.add_column("sizes", no_wrap=True)
    table.add_column("M", no_wrap=True)
    table.add_column("configuration", overflow="fold")
    for name in ("tuned M", "worst loss"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in compacted.groups:
        for one in group.ranges:
            worst = max(size.loss(one.name) for size in one.sizes)
            table.add_row(escape(group.label), span(one), escape(one.name), f"{len(one.sizes)}", f"{worst * 100:.2f} %")
    return table


def span(one: Range) -> str:
    return f"{one.low} and more" if one.high is None else f"{one.low} to {one.high}"


def closing(compacted: Compacted, loss: float) -> list[str]:
    losses = [serving.loss for serving in compacted.servings]
    proof = "no smaller set exists" if compacted.method == EXACT else "greedy; a smaller set may exist"
    lines = [
        f"{len(compacted.names)} configs serve {len(losses)} sizes within {loss * 100:g} %, where there were "
        f"{compacted.configs_before} ({proof})",
        f"loss: mean {sum(losses) / len(losses) * 100:.2f} %, worst {max(losses) * 100:.2f} %",
    ]
    lines.append("how many sizes each serves:")
    return lines + [f"  {name}: {len(compacted.served_by(name))}" for name in compacted.names]


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
                "class": group.problem.class_key,
                "ranges": [
                    {"low": one.low, "high": one.high, "config": one.name, "tuned_m": [s.problem.m for s in one.sizes]}
                    for one in group.ranges
                ],
            }
            for group in compacted.groups
        ],
    }
