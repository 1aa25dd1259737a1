"""``tune_gemm.py report RUN``: shows a run as an HTML page, in the terminal or as JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import output_file, positive
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import OUTPUT
from gemm_tuner.core.errors import EXIT_OK
from gemm_tuner.report import data, html, summary, text
from gemm_tuner.store import run_place, run_record
from gemm_tuner.system.documents import write_text_atomically
from gemm_tuner.system.terminal_table import print_line

DESCRIPTION = """\
Shows a run: what each rule cut, every configuration that was kept with its measured and its predicted time,
the finals with their intervals, the roofline, the vendor library's times, the time of each stage and the
environment; of a results file also the rows of other runs. Without --text or --json it writes one HTML file
that needs no network.
"""
EXAMPLES = """\
examples:
  write report.html into the run's folder, or another file
    tune_gemm.py report results/20260131-120000-1a2b
    tune_gemm.py report tuned.yaml -o r.html
  print the same in the terminal, or a summary as JSON
    tune_gemm.py report results/20260131-120000-1a2b --text
    tune_gemm.py report results/20260131-120000-1a2b --json

exit status: 0 the report was made; 2 there is no such run, or the page has no folder; 3 the file cannot be
written, such as on a full disk.
"""


def add_flags(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder, which holds run.json and configs/, or a "
                        "results file, which names its run")  # fmt: skip
    parser.add_argument(*OUTPUT, metavar="FILE", type=output_file, help="the page (default: report.html in RUN)")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--text", action="store_true", help="print the essentials; a page is written for -o only")
    shape.add_argument("--json", action="store_true", help="print the summary as JSON; a page is written for -o only")
    parser.add_argument("--top", metavar="N", type=positive, default=5,
                        help="of --text: configurations shown a size (default: %(default)s)")  # fmt: skip


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    """Runs the command. Raises UserError if RUN is not a run, EnvironmentFault if the page cannot be written."""
    folder = run_place.run_folder(arguments.run)
    is_of_run = arguments.run.is_dir() or arguments.run.name == run_record.RUN_FILE
    report = data.load(folder, None if is_of_run else arguments.run)
    if arguments.text:
        text.show(report, shown.out, arguments.top)
    if arguments.json:
        document = summary.finite(summary.of_report(report))
        shown.out.print(json.dumps(document, default=str), markup=False, highlight=False, soft_wrap=True)
    if arguments.output or not (arguments.text or arguments.json):
        path = arguments.output or folder / "report.html"
        write_text_atomically(path, html.render(report))
        print_line(shown.log, f"report: {path}")
    return EXIT_OK
