"""The command line: every flag, its unit and its default."""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import gemm_tuner
from gemm_tuner.documents import show
from gemm_tuner.dtypes import DTYPES
from gemm_tuner.errors import UserError
from gemm_tuner.launcher.operands import INIT_TYPES
from gemm_tuner.profilers import AUTO, PROFILERS

DESCRIPTION = """\
Finds, for every GEMM size in a list, the fastest correct Triton kernel configuration on this GPU,
and writes it as a tuned-config YAML. Without a GPU it does what can be done: kernels are compiled
for --arch, pruned by what their binaries need, ranked by a model and checked in Triton's
interpreter; such rows say 'source: predicted'.
"""
EXAMPLES = """\
examples:
  tune_gemm.py --gemm_size_file sizes.yaml --compare         tune a list of sizes
  tune_gemm.py -m 4096 -n 4096 -k 4096 -dtype_a fp16         tune one size; the other types follow
  tune_gemm.py -m 4096 -n 4096 -k 4096 --arch gfx942 --dry_run   what would be tried, and how long it takes
  tune_gemm.py -m 512 -n 512 -k 512 --explain BLOCK_SIZE_M=256,num_warps=8   why is this not tried?
  tune_gemm.py --gemm_size_file tuned.yaml --benchmark       time the configurations of a results file
  tune_gemm.py --gemm_size_file tuned.yaml --compare_wo_tuning   check them

exit status: 0 every size has a verified configuration; 1 some size has none; 2 the command line or a
file is wrong; 3 the machine lacks something (GPU, profiler, disk); 130 interrupted.
"""

# ROCm's flags that have no use here, and what takes their place.
REPLACED = {
    "icache_flush": "not needed: finalists are interleaved, so every launch finds another kernel's code cached",
    "hack_triton_compiler": "not needed: kernels are compiled by workers that never open the GPU",
}
REPLAY = "replay"
PROFILER_NAMES = (AUTO, *(profiler.name for profiler in PROFILERS), REPLAY)
SEE_HELP = "--help lists all flags"


class Parser(argparse.ArgumentParser):
    """Raises UserError where argparse prints a screenful of usage and exits."""

    def error(self, message: str) -> NoReturn:
        about = re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL)
        if about is None:
            raise UserError(message, hint=SEE_HELP)
        raise UserError(about[2].replace("ignored explicit argument", "takes no value, and has"), where=about[1])

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """What the flags say. Raises UserError, for an unknown flag with the nearest known one."""
        arguments, unknown = self.parse_known_args(underscored(argv))
        if not unknown:
            return arguments
        word = unknown[0].partition("=")[0]
        if not word.startswith("-"):
            is_file = word.endswith((".yaml", ".yml"))
            hint = "name a file of sizes by --gemm_size_file" if is_file else SEE_HELP
            raise UserError(f"unexpected argument {show(word)}", hint=hint)
        flags = {flag.lstrip("-"): flag for action in self._actions for flag in action.option_strings}
        near = difflib.get_close_matches(word.lstrip("-")[:60], flags, 1)
        hint = f"did you mean {flags[near[0]]}?" if near else SEE_HELP
        raise UserError(f"unknown flag {word if word.isprintable() else show(word)}", hint=hint)


def data_folder(name: str) -> Path:
    """templates/ or rules/: inside the installed package, or beside it in a checkout."""
    package = Path(gemm_tuner.__file__).resolve().parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def positive(text: str) -> int:
    """An argparse type: an integer of 1 or more."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{show(text)} is not an integer of 1 or more")
    return value


def not_negative(text: str) -> int:
    """An argparse type: an integer of 0 or more."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{show(text)} is not an integer of 0 or more")
    return value


def id_list(text: str) -> tuple[int, ...]:
    """An argparse type: GPU ids with commas between them."""
    if not re.fullmatch("[0-9]{1,6}(,[0-9]{1,6})*", text):
        raise argparse.ArgumentTypeError(f"{show(text)} is no list of ids such as 0,1,3")
    return tuple(int(part) for part in text.split(","))


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """An argparse type: one of some names."""
    known = tuple(names)

    def checked(text: str) -> str:
        if text in known:
            return text
        near = difflib.get_close_matches(text[:60], known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentTypeError(f"{show(text)} is not known; accepted: {', '.join(known)}{hint}")

    return checked


def build_parser() -> Parser:
    """The whole command line. '-' and '_' mean the same in long flags (``underscored``)."""
    parser = Parser(
        prog="tune_gemm.py",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tune_gemm {gemm_tuner.__version__}")
    _what_to_tune(parser)
    _what_to_do(parser)
    _space(parser)
    _timing(parser)
    _output(parser)
    replaced = parser.add_argument_group("flags of ROCm's tune_gemm.py that change nothing here (a line says why)")
    for name, why in REPLACED.items():
        replaced.add_argument(f"--{name}", action="store_true", help=why)
    return parser


def _what_to_tune(parser: Parser) -> None:
    group = parser.add_argument_group("what to tune: C[M,N] = A[M,K] @ B[K,N] (+ bias[N])")
    group.add_argument("--gemm_size_file", metavar="FILE", help="YAML list of {M, N, K}, or a results file")
    for name in ("m", "n", "k"):
        group.add_argument(f"-{name}", type=positive, metavar=name.upper(), help=f"one size: {name.upper()}, elements")
    group.add_argument("-col_a", action="store_true", help="A is column-major (default: row-major)")
    group.add_argument("-col_b", action="store_true", help="B is column-major (default: row-major)")
    types = ", ".join(DTYPES)
    group.add_argument("-dtype_a", metavar="TYPE", type=one_of(DTYPES), help=f"type of A: {types} (default: bf16)")
    group.add_argument("-dtype_b", metavar="TYPE", type=one_of(DTYPES), help="type of B (default: that of A)")
    group.add_argument("-dtype_c", metavar="TYPE", type=one_of(DTYPES), help="type of C (default: that of A)")
    group.add_argument("--bias_vector", action="store_true", help="add a bias of N elements, one a column of C")


def _what_to_do(parser: Parser) -> None:
    group = parser.add_argument_group("what to do (default: tune)")
    group.add_argument(
        "--compare",
        action="store_true",
        help="check every finalist of each size; without it, finalists are checked best first until one is right",
    )
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--compare_wo_tuning", action="store_true", help="tune nothing: check the configurations of a results file"
    )
    one.add_argument("--benchmark", action="store_true", help="tune nothing: time the configurations of a results file")
    one.add_argument(
        "--dry_run", action="store_true", help="print what each rule cuts and a time estimate, then stop; needs no GPU"
    )
    one.add_argument(
        "--explain",
        metavar="CONFIG",
        help="say whether a configuration is tried, and which rule cuts it: its name, or FIELD=VALUE,...",
    )


def _space(parser: Parser) -> None:
    group = parser.add_argument_group("the space of configurations")
    group.add_argument("--arch", metavar="ARCH", default="", help="sm_80, sm_90, sm_100, gfx90a, gfx942 or gfx950 "
                       "(default: this machine's GPU, sm_90 without one)")  # fmt: skip
    group.add_argument("--no_heuristics", action="store_true", help="keep whatever is valid: a much larger space")
    group.add_argument("--space", metavar="FILE", type=Path, help="axes, in place of rules/space_<arch>.yaml")
    group.add_argument("--rules", metavar="DIR", type=Path, default=data_folder("rules"),
                       help="rules and axes; its Python files are run (default: rules/)")  # fmt: skip
    group.add_argument("--templates", metavar="DIR", type=Path, default=data_folder("templates"),
                       help="kernel templates, which become code that is run (default: templates/)")  # fmt: skip


def _timing(parser: Parser) -> None:
    group = parser.add_argument_group("compiling and timing")
    group.add_argument("--profiler", metavar="NAME", type=one_of(PROFILER_NAMES), default=AUTO,
                       help=f"one of {', '.join(PROFILER_NAMES)} (default: %(default)s)")  # fmt: skip
    group.add_argument(
        "--replay", metavar="DIR", type=Path, help="for --profiler replay: the raw folder of a run with --keep"
    )
    group.add_argument("--ngpus", type=positive, metavar="N", help="GPUs to use (default: 1)")
    group.add_argument("--gpu_ids", type=id_list, metavar="ID,ID", help="which GPUs to use, as torch numbers them")
    group.add_argument("--num_threads", type=positive, metavar="N", default=os.cpu_count() or 1,
                       help="compile workers, which are processes (default: all cores, %(default)s)")  # fmt: skip
    group.add_argument("--compile_limit", type=positive, metavar="S", default=60,
                       help="seconds one kernel may compile (default: %(default)s)")  # fmt: skip
    group.add_argument("--jobs", type=positive, metavar="N", default=1,
                       help="profiler starts that a GPU's screening is dealt over (default: %(default)s)")  # fmt: skip
    group.add_argument("--iters", type=positive, metavar="N", default=30,
                       help="timed calls of each finalist and in --benchmark (default: %(default)s)")  # fmt: skip
    group.add_argument("--init_type", metavar="KIND", type=one_of(INIT_TYPES), default="randn",
                       help=f"values of A and B: {', '.join(INIT_TYPES)}; zeros run faster than real data "
                       "(default: %(default)s)")  # fmt: skip
    group.add_argument("--seed", type=not_negative, metavar="N", default=0, help="of the random values (default: 0)")
    group.add_argument("--rotating_tensor", type=not_negative, metavar="MB", default=0,
                       help="rotate through copies of A, B and C of MB MiB in all; 0 empties L2 before each "
                       "call instead (default: %(default)s)")  # fmt: skip
    group.add_argument("--no_warmup", action="store_true",
                       help="skip the compile stage: kernels compile in the profiled process, slowly")  # fmt: skip


def _output(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--tuning_results_file", "--o", metavar="FILE", type=Path,
                       help="the tuned YAML (default: tuned.yaml in the run's folder)")  # fmt: skip
    group.add_argument("--output_dir", metavar="DIR", type=Path, default=Path("results"),
                       help="where each run makes a folder (default: %(default)s)")  # fmt: skip
    group.add_argument("--keep", action="store_true", help="keep the generated scripts and the profiler's raw output")
    group.add_argument("--verbose", action="store_true", help="print whole funnels and the time of each stage")
    group.add_argument("--time_breakdown", action="store_true", help="print the time of each stage")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def underscored(argv: list[str]) -> list[str]:
    """Long flags with '-' spelt '_': ``--gemm-size-file=x`` becomes ``--gemm_size_file=x``, -dtype-a -dtype_a."""
    spelt = []
    for argument in argv:
        flag, equals, value = argument.partition("=")
        dashes = re.match("--?(?=[A-Za-z]{2})", flag)
        if dashes:
            flag = dashes[0] + flag[dashes.end() :].replace("-", "_")
        spelt.append(flag + equals + value)
    return spelt
