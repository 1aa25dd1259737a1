"""``tune_gemm.py spec``: runs, and with --tune ranks, a program over all combinations of its parameters."""

from __future__ import annotations

import argparse
from pathlib import Path

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import duration_s, not_negative, one_of, output_file, output_folder
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import OUTPUT, add_wait_flags, wait_s
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED, UserError
from gemm_tuner.kernels.program_spec import ProgramSpec
from gemm_tuner.kernels.program_spec_file import read_spec
from gemm_tuner.pipeline import spec_profile, spec_run
from gemm_tuner.pipeline.spec_rows import SpecRun
from gemm_tuner.pipeline.spec_run import SEARCHES, SpecOptions
from gemm_tuner.report import spec_files, spec_preview, spec_text
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.store.spec_journal import folder_of
from gemm_tuner.system import bug_report
from gemm_tuner.system.terminal_table import print_line

DESCRIPTION = """\
Runs a program that measures itself, once for each combination of its parameters, each time in a process of its own,
and with --tune finds the best. A combination that crashes, hangs or prints no metric costs only itself. Spec files of
Modular's tune.py work unchanged. This runs what the spec names.

  # matmul.yaml
  name: matmul
  command: "{out} --runs {RUNS}"         # or  file: sample.mojo
  build: "cc -O3 -DTILE={TILE} matmul.c -o {out}"   # optional
  params: {TILE: [8, 16, 32], $RUNS: 5}  # one value or several
  rules: ["TILE <= 16"]                  # or {keep: ..., why: ...}
  metric: {regex: "ms=([0-9.]+)"}        # or json, csv_column

{out} is a file of each build's own; a build is made once for all values of parameters with $. Words are parted before
values are put in, and no shell reads them; with shell: true values are quoted, so that placeholders need no quotes.
metric has unit (ms) and better (lower) besides; without metric, the table of Modular's Bench is read. A Mojo file gets
-D NAME=VALUE, a Python file --NAME=VALUE; the keys mojo and python say what runs it. Further keys: env, cwd (the spec's
folder), timeout_s (60), build_timeout_s (300), repeat (1), and expect_name, what the program's own name of its case
must hold, such as "M={M}". In place of metric, profile: {kernels: "matmul.*"} runs the program under a profiler: the
metric is the sum of the medians of the kernels that match. With select: last, not the median of several runs or
launches counts, but the last.
"""
EXAMPLES = """\
examples:
  tune_gemm.py spec examples/kernels/matmul.yaml --tune --output best.yaml
  tune_gemm.py spec examples/kernels/matmul.yaml --dry_run
  tune_gemm.py spec examples/kernels/matmul.yaml --explain TILE_M=8,TILE_N=64

exit status: 0 a combination was measured; 1 none was; 2 the command line or the spec is wrong; 3 a program is not
installed or a file cannot be written; 130 interrupted: the same command goes on.
"""
# Flags of tuning kernels that make no sense for programs.
INSTEAD = {
    "--compare": "a program checks its own results and, where they are wrong, ends with a status that is not 0; "
    "--compare_wo_tuning runs a best file again",
    "--arch": "what a program is compiled for is in its spec: build: or command:, such as -march={ARCH}",
}


def add_flags(parser: Parser) -> None:
    parser.instead.update(INSTEAD)
    parser.add_argument("spec", metavar="SPEC", type=Path, nargs="?", help="the spec file")
    parser.add_argument("--yaml", metavar="SPEC", type=Path, help="the same")
    parser.add_argument("--tune", action="store_true", help="sort by the metric; the best have finals")
    parser.add_argument(*OUTPUT, metavar="FILE", type=output_file,
                        help="FILE.csv: the table; FILE.yaml: the best, a spec again")  # fmt: skip
    parser.add_argument("--rounds", metavar="N", type=not_negative, default=3,
                        help="rounds of finals (default: 3)")  # fmt: skip
    parser.add_argument("--profiler", metavar="NAME", default="",
                        help=f"what times the kernels of a spec with profile: {', '.join(spec_profile.TOOLS)} "
                        "(default: one that is installed)")  # fmt: skip
    parser.add_argument("--search", metavar="KIND", type=one_of(SEARCHES), default=SEARCHES[0],
                        help="which combinations are run: full, all; genetic, generations that cross the best known "
                        "ones (default: full)")  # fmt: skip
    parser.add_argument("--budget", metavar="TIME", type=duration_s, default=0.0,
                        help="end after this wall time, such as 90s or 10m, with the best so far")  # fmt: skip
    add_wait_flags(parser)
    parser.add_argument("--compile_only", action="store_true", help="build all, and run nothing")
    parser.add_argument("--dry_run", action="store_true", help="list what would be run")
    parser.add_argument("--explain", metavar="NAME=VALUE,...", help="say which rule cuts it")
    parser.add_argument("--params", action="store_true",
                        help="list the usual parameters of Triton kernels, with usual values")  # fmt: skip
    parser.add_argument("--compare_wo_tuning", "--check", action="store_true", help="run a best file again")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier starts measured")
    parser.add_argument("--output_dir", metavar="DIR", type=output_folder, default=DEFAULT_OUTPUT_DIR,
                        help="where runs are kept (default: results)")  # fmt: skip


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    if arguments.params:
        spec_preview.show_params(shown.out)
        return EXIT_OK
    spec = read_spec(_path(arguments))
    if arguments.explain is not None:
        spec_preview.explain(spec, arguments.explain, shown.out)
        return EXIT_OK
    if arguments.dry_run:
        spec_preview.show_plan(spec, shown.out)
        return EXIT_OK
    checks = arguments.compare_wo_tuning
    if checks and (spec.best is None or spec.count != 1):
        accepted = "a best file, which --tune --output FILE.yaml writes"
        raise UserError(f"{spec.path} is no best file", where="--compare_wo_tuning", accepted=accepted)
    tune = arguments.tune and not checks
    spec = spec_profile.with_profiler(spec, arguments.profiler)
    spec_files.check_output(arguments.output, spec.path, tune=tune)
    if arguments.compile_only and not spec.build:
        raise UserError(f"{spec.path} has no build line", where="--compile_only", accepted="a spec with build:")
    fresh, how = arguments.fresh or checks, (arguments.search, arguments.budget, arguments.compile_only)
    options = SpecOptions(tune, arguments.rounds, fresh, arguments.output_dir, *how, wait_s(arguments))
    with bug_report.belongs_to(folder_of(spec, arguments.output_dir)):
        run = spec_run.run(spec, options, shown.log)
        if arguments.compile_only and not run.interrupted:
            failed = spec_text.show_builds(run, shown.out)
            return EXIT_UNVERIFIED if failed else EXIT_OK
        spec_text.show_run(run, shown.out, tune=tune)
        if arguments.output and spec_files.write_output(run, arguments.output, tune=tune):
            print_line(shown.log, f"written: {arguments.output}")
        if run.interrupted:
            raise KeyboardInterrupt
    if checks and run.ranked:
        print_line(shown.out, _compared(spec, run))
    return EXIT_OK if run.ranked else EXIT_UNVERIFIED


def _path(arguments: argparse.Namespace) -> Path:
    if (arguments.spec is None) == (arguments.yaml is None):
        what = "both SPEC and --yaml are given" if arguments.spec else "no spec file is given"
        raise UserError(what, accepted="SPEC, or --yaml SPEC")
    path: Path = arguments.spec or arguments.yaml
    return path


def _compared(spec: ProgramSpec, run: SpecRun) -> str:
    now = run.ranked[0].value
    assert now is not None and spec.best is not None
    change = f" ({100 * (now / spec.best - 1):+.1f} %)" if spec.best else ""
    before, unit = spec_text.number(spec.best), spec.metric.shown_unit
    return f"the spec runs: {spec_text.number(now)} {unit}, was {before} {unit}{change}"
