"""``tune_gemm.py check``: the machine, what a run would use, problems and how to fix them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import one_of
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import add_document_flags, put_document
from gemm_tuner.core import architecture
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_OK
from gemm_tuner.measure.machine_check import facts, findings
from gemm_tuner.measure.machine_check.facts import Facts
from gemm_tuner.measure.machine_check.findings import Finding, Level
from gemm_tuner.profilers import AUTO, PROFILERS
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.system.installation import data_folder
from gemm_tuner.system.terminal_table import print_line

DESCRIPTION = """\
Says what this machine has (GPUs, driver, profilers, Triton, torch, clocks, other processes, cores, memory, disk), what
a run would use, and what is wrong with the command that mends it. It starts no kernel and changes nothing. (Whether
results are right is said by the flags --compare and --compare_wo_tuning.)
"""
EXAMPLES = """\
examples:
  tune_gemm.py check
  tune_gemm.py check --json
  the machines of a cluster
    tune_gemm.py check --cluster ray:10.0.0.1:6379
  what a run with these flags would find
    tune_gemm.py check --profiler ncu --output_dir /data/results

exit status: 0 times can be measured here; 3 they cannot, and the output says why and what works nevertheless. With
--cluster: 0 some machine can work for a run, if only compile; 3 none can.
"""
WITHOUT_A_GPU = (
    "without measuring, these work: tuning with predicted times (rows say source: predicted), --dry_run, --explain, "
    "--compare_wo_tuning, --profiler replay, and the subcommands"
)
_COLOURS = {Level.BLOCKS: "red", Level.WARNING: "yellow", Level.NOTE: "blue"}


def add_flags(parser: Parser) -> None:
    names = (AUTO, *(profiler.name for profiler in PROFILERS))
    parser.add_argument("--profiler", metavar="NAME", type=one_of(names), default=AUTO,
                        help=f"one of {', '.join(names)} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--arch", metavar="ARCH", default="", type=architecture.plain,
                        help="tune for this architecture (default: the GPU's)")  # fmt: skip
    parser.add_argument("--cluster", metavar="ray[:ADDRESS]",
                        help="look at the machines of this cluster instead (docs/cluster.md)")  # fmt: skip
    parser.add_argument("--output_dir", metavar="DIR", type=Path, default=DEFAULT_OUTPUT_DIR,
                        help="where runs would make their folders (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rules", metavar="DIR", type=Path, default=data_folder("rules"),
                        help="folder of the space files (default: rules/)")  # fmt: skip
    add_document_flags(parser)


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    if arguments.cluster is not None:
        return check_cluster(arguments, shown)
    known = facts.gather(arguments.output_dir, arguments.rules, arguments.profiler, arguments.arch)
    found = findings.judge(known)
    document = {
        "measurable": findings.measurable(found),
        **asdict(known),
        "findings": [asdict(one) for one in found],
    }
    put_document(document, arguments)
    if not arguments.json:
        show(known, found, shown.out)
    return EXIT_OK if findings.measurable(found) else EXIT_ENVIRONMENT


def check_cluster(arguments: argparse.Namespace, shown: Consoles) -> int:
    """Lists the machines of a cluster, their GPUs and versions, and what is wrong with each."""
    from gemm_tuner.pipeline import cluster_check

    found = cluster_check.look(arguments.cluster, shown.log)
    put_document({"machines": [asdict(one) for one in found]}, arguments)
    if not arguments.json:
        for text in cluster_check.lines(found):
            print_line(shown.out, text)
    return EXIT_OK if any(one.compiles or one.times for one in found) else EXIT_ENVIRONMENT


def show(known: Facts, found: list[Finding], console: Console) -> None:
    """Prints facts, plan and findings, one line each."""

    def line(text: str, style: str = "") -> None:
        print_line(console, text, style)

    line("This machine", "bold")
    for text in (*_gpu_lines(known), *_other_lines(known)):
        line(f"  {text}")
    line("A run would use", "bold")
    plan = known.plan
    line(f"  architecture {plan.arch}, {plan.space_file or 'no space file'}")
    line(f"  {'profiler ' + plan.profiler if plan.source == 'measured' else 'no profiler'}; times are {plan.source}")
    line("Findings" if found else "Findings: none", "bold")
    for one in found:
        print_line(console, Text.assemble("  ", (one.level.value, _COLOURS[one.level]), f": {one.what}"))
        if one.mend:
            line(f"      {one.mend}")
    line("times can be measured here" if findings.measurable(found) else WITHOUT_A_GPU)


def _gpu_lines(known: Facts) -> list[str]:
    lines = [
        f"GPU {gpu['id']}: {gpu['name']}, {gpu['arch']}, {gpu['num_sms']} SMs, {gpu['memory_bytes'] / 2**30:.0f} GiB"
        for gpu in known.machine.gpus
    ] or ["GPUs that torch sees: none"]
    for state in known.states:
        clock = f"{state.sm_clock_mhz} of {state.max_sm_clock_mhz} MHz" if state.sm_clock_mhz else "clock not told"
        users = ", ".join(f"{process.pid} ({process.name})" for process in state.processes) or "none"
        lines.append(f"driver's GPU {state.index}: {state.name}, {clock}, clocks {state.clocks}, processes: {users}")
    return lines


def _other_lines(known: Facts) -> list[str]:
    around, versions = known.around, known.machine.versions
    told = ", ".join(f"{name} {versions.get(name) or 'not installed'}" for name in ("triton", "torch", "python"))
    tools = ", ".join(f"{tool.name} {tool.version or 'not installed'}" for tool in known.tools)
    memory = [f"{size / 2**30:.1f} GiB{what}" for size, what in (
        (around.memory_bytes, ""), (around.memory_limit_bytes, " limit of the container")) if size]  # fmt: skip
    return [
        f"driver {known.machine.driver or 'not told'}, {told}",
        f"profilers: {tools}",
        f"{around.cores} cores, memory {', '.join(memory) or 'not told'}",
        f"output folder {around.output_folder}: {around.free_bytes / 2**30:.1f} GiB free, "
        f"{'cannot be written' if around.write_fault else 'can be written'}",
    ]
