"""All flags of the main command, with units and defaults."""

from __future__ import annotations

import argparse
from pathlib import Path

import gemm_tuner
from gemm_tuner.cli.commands import SUBCOMMANDS
from gemm_tuner.cli.flag_types import (
    batch_count,
    duration_s,
    factor,
    id_list,
    name_list,
    not_negative,
    one_of,
    output_file,
    output_folder,
    percent,
    positive,
    size_bytes,
    worker_count,
)
from gemm_tuner.cli.help_texts import DESCRIPTION, EXAMPLES, EXIT_STATUS, USAGE
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import OUTPUT, add_wait_flags
from gemm_tuner.consumers import SERVERS
from gemm_tuner.core import architecture
from gemm_tuner.core.dtypes import INPUT_DTYPES, OUTPUT_DTYPES
from gemm_tuner.gemm.operands import INIT_TYPES
from gemm_tuner.gemm.problem import ACTIVATIONS, PRECISIONS, SCALE_BLOCK, SCALINGS
from gemm_tuner.gemm.problem_keys import dtype_hint
from gemm_tuner.pipeline.run_options import IN_PROCESS
from gemm_tuner.profilers import AUTO, PROFILERS
from gemm_tuner.search import SEARCHES
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.system.cores import usable_cores
from gemm_tuner.system.installation import data_folder

# The argparse dests of the flags that --help shows; --help_all shows all.
EVERYDAY = (
    *("help", "help_all", "gemm_size_file", "m", "n", "k", "dtype", "layout_b", "scaling", "dry_run", "benchmark"),
    *("compare", "compare_wo_tuning", "explain", "search", "budget", "update", "families", "serve", "arch"),
    *("profiler", "ngpus", "output", "output_dir", "fresh", "verbose"),
)

# Flags of ROCm's tuner that do not exist here, and their replacements.
REPLACED = {
    "icache_flush": "not needed: finalists are interleaved, so every launch finds another kernel's code cached",
    "hack_triton_compiler": "not needed: kernels are compiled by workers that never open the GPU",
}
REPLAY = "replay"
SCREENERS = (AUTO, IN_PROCESS, *(profiler.name for profiler in PROFILERS))
PROFILER_NAMES = (AUTO, *(profiler.name for profiler in PROFILERS), REPLAY)


def subcommand_lines() -> str:
    """The lines of --help about subcommands."""
    width = max(map(len, SUBCOMMANDS))
    lines = [f"  {name:{width}}  {what}" for name, what in SUBCOMMANDS.items()]
    return "\n".join(["subcommands, each with a --help of its own:", *lines, "", ""])


def build_parser() -> Parser:
    """The parser of the main command. '-' and '_' are equivalent in long flags (``parser.underscored``)."""
    parser = Parser(
        "", DESCRIPTION, subcommand_lines() + EXIT_STATUS, usage=USAGE, everyday=EVERYDAY, examples=EXAMPLES
    )
    parser.add_argument(
        "--version", action="version", version=f"tune_gemm {gemm_tuner.__version__}", help="print the version and stop"
    )
    parser.instead["--yaml"] = "specs of programs: tune_gemm.py spec --yaml SPEC.yaml --tune"
    _what_to_tune(parser)
    add_flags_of_a_run(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    replaced = parser.add_argument_group("flags of ROCm's tune_gemm.py that change nothing here (a line says why)")
    for name, why in REPLACED.items():
        replaced.add_argument(f"--{name}", action="store_true", help=why)
    return parser


def add_flags_of_a_run(parser: Parser) -> None:
    """All flags of tuning except those that say what to tune."""
    _what_to_do(parser)
    _space(parser)
    _timing(parser)
    _output(parser)


def _what_to_tune(parser: Parser) -> None:
    group = parser.add_argument_group(
        "what to tune",
        "C[M,N] = activation(alpha * A[M,K] @ B[K,N] + beta * C_in[M,N] + bias[N])\n\n"
        "Keys of a size file's entry are called like these flags, and come before them: "
        "{M: 16, N: 4096, K: 4096, dtype: fp16, layout_b: col, bias: true}.",
    )
    group.add_argument("--gemm_size_file", metavar="FILE", help="YAML list of {M, N, K}, or a results file; "
                       "- reads it from standard input")  # fmt: skip
    for name in ("m", "n", "k"):
        group.add_argument(f"-{name}", type=positive, metavar=name.upper(), help=f"one size: {name.upper()}, elements")
    group.add_argument("--batch", type=batch_count, metavar="N", default=1,
                       help="products of this size in one call, matrices one after another (default: %(default)s)",
                       )  # fmt: skip
    for matrix in ("a", "b"):
        layout = group.add_mutually_exclusive_group()
        layout.add_argument(f"--layout_{matrix}", metavar="KIND", type=one_of(("row", "col")),
                            help=f"row or col: how {matrix.upper()} lies in memory (default: row)",
                            )  # fmt: skip
        layout.add_argument(f"--col_{matrix}", f"-col_{matrix}", action="store_true",
                            help=f"the same as --layout_{matrix} col")  # fmt: skip
    _types(group)
    group.add_argument("--scaling", metavar="KIND", type=one_of(SCALINGS), default="none",
                       help="fp32 scales of fp8 and int8 inputs: none; tensor, one for A and one for B; row_col, one a "
                       f"row of A and a column of B; block (fp8), one for 1 x {SCALE_BLOCK} of A and {SCALE_BLOCK} x "
                       f"{SCALE_BLOCK} of B (default: %(default)s)")  # fmt: skip
    group.add_argument("--alpha", metavar="X", type=factor, default=1.0, help="factor of A @ B (default: 1)")
    group.add_argument("--beta", metavar="X", type=factor, default=0.0,
                       help="factor of C_in, a matrix like C; 0 reads none (default: 0)")  # fmt: skip
    group.add_argument(
        "--bias", "--bias_vector", action="store_true", help="add a bias of N elements, one a column of C"
    )
    group.add_argument("--activation", metavar="KIND", type=one_of(ACTIVATIONS), default="none",
                       help=f"applied last: {', '.join(ACTIVATIONS)} (default: %(default)s)")  # fmt: skip


def _types(group: argparse._ArgumentGroup) -> None:
    inputs, outputs = one_of(INPUT_DTYPES, dtype_hint), one_of(OUTPUT_DTYPES, dtype_hint)
    group.add_argument("--dtype", metavar="TYPE", type=inputs,
                       help=f"type of A and B, which C follows: {', '.join(INPUT_DTYPES)}; fp8 names without fnuz are "
                       "OCP's, those with it are of MI300 (default: bf16)")  # fmt: skip
    group.add_argument("--dtype_a", "-dtype_a", metavar="TYPE", type=inputs,
                       help="type of A, in place of --dtype (default: bf16)")  # fmt: skip
    group.add_argument("--dtype_b", "-dtype_b", metavar="TYPE", type=inputs,
                       help="type of B: that of A, or another fp8 of its kind (default: that of A)")  # fmt: skip
    group.add_argument("--dtype_c", "-dtype_c", metavar="TYPE", type=outputs,
                       help=f"type of C: {', '.join(OUTPUT_DTYPES)} (default: that of A; bf16 for fp8; int32 for int8, "
                       "bf16 with alpha, beta, scaling or activation)")  # fmt: skip
    group.add_argument("--precision", metavar="KIND", type=one_of(PRECISIONS), default="ieee",
                       help="how fp32 is multiplied: ieee, in full; tf32, faster, with 10 bits of each fraction "
                       "(default: %(default)s)")  # fmt: skip


def _what_to_do(parser: Parser) -> None:
    group = parser.add_argument_group("what to do (default: tune)")
    group.add_argument(
        "--compare",
        nargs="?",
        const="finalists",
        type=one_of(("finalists", "all")),
        metavar="WHICH",
        help="check every finalist of each size, or with 'all' every configuration that was timed; "
        "without it, finalists are checked best first until one is right. Times of two runs are compared by the "
        "subcommand compare",
    )
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--compare_wo_tuning",
        action="store_true",
        help="tune nothing: check the results of the configurations of a results file",
    )
    one.add_argument("--benchmark", action="store_true", help="tune nothing: time the configurations of a results file")
    one.add_argument(
        "--dry_run", action="store_true", help="print what each rule cuts and a time estimate, then stop; needs no GPU"
    )
    one.add_argument(
        "--compile_only", action="store_true",
        help="compile what the rules keep, print registers, spills and shared memory of each, then stop; needs no GPU",
    )  # fmt: skip
    one.add_argument(
        "--explain",
        metavar="CONFIG",
        help="say which rule cuts a configuration, or its place by the model and whether a run asks for it: its name, "
        "also as terminals shorten it, or FIELD=VALUE,...",
    )


def _space(parser: Parser) -> None:
    group = parser.add_argument_group("the space of configurations")
    group.add_argument("--search", metavar="KIND", type=one_of(SEARCHES), default=SEARCHES[0],
                       help="which of them are timed: guided, some 6 %% of them, of a GEMM at most 64, in rounds that "
                       "learn from each other; full, all; quick, the model's best 16; genetic, generations that cross "
                       "the fastest known ones (default: %(default)s)")  # fmt: skip
    group.add_argument("--budget", metavar="TIME", type=duration_s, default=0.0,
                       help="end after this wall time, such as 90s or 10m, with the best so far; of a run that times: "
                       "without a GPU it changes nothing")  # fmt: skip
    group.add_argument("--update", metavar="FILE", type=Path,
                       help="an older results file: its configurations are timed in the finals, and replaced only "
                       "by clearly faster ones")  # fmt: skip
    group.add_argument("--min_improvement", metavar="PCT", type=percent, default=2.0,
                       help="with --update: by how much a new configuration must be faster, such as 3%% or 3 "
                       "(default: 2%%)")  # fmt: skip
    group.add_argument("--arch", metavar="ARCH", default="", type=architecture.plain,
                       help="such as sm_90 or gfx942; one without a file in rules/ has its nearest relative's "
                       "space (default: this machine's GPU, sm_90 without one)")  # fmt: skip
    group.add_argument("--no_heuristics", action="store_true", help="keep whatever is valid: a much larger space")
    group.add_argument("--families", type=name_list, default=(), metavar="NAME,NAME",
                       help="kernel families to try, such as gemm_tile, which is what others' servers run "
                       "(default: all of the space)")  # fmt: skip
    group.add_argument("--serve", metavar="SERVER", type=one_of(SERVERS), action="append", default=[],
                       help="also find the best that this server's kernel can launch, or, for triton, a plain tile "
                       f"kernel of yours, and time the server's default beside it: {', '.join(SERVERS)}; may be given "
                       "again")  # fmt: skip
    group.add_argument("--kernel_from", metavar="[SERVER=]PATH", action="append", default=[],
                       help="with --serve: measure the server's own block-scaled fp8 kernel, taken from the text of "
                       "this .py file or of the package in this folder, such as site-packages/vllm, in place of "
                       "gemm_tile; may be given again, with SERVER= where several are served")  # fmt: skip
    group.add_argument("--space", metavar="FILE", type=Path, help="axes, in place of rules/space_<arch>.yaml")
    group.add_argument("--rules", metavar="DIR", type=Path, default=data_folder("rules"),
                       help="rules and axes; its Python files are run (default: rules/)")  # fmt: skip
    group.add_argument("--templates", metavar="DIR", type=Path, default=data_folder("templates"),
                       help="kernel templates, which become code that is run (default: templates/)")  # fmt: skip


def _timing(parser: Parser) -> None:
    group = parser.add_argument_group("compiling and timing")
    group.add_argument("--profiler", metavar="NAME", type=one_of(PROFILER_NAMES), default=AUTO,
                       help=f"one of {', '.join(PROFILER_NAMES)} (default: %(default)s)")  # fmt: skip
    group.add_argument("--screen_with", metavar="NAME", type=one_of(SCREENERS), default=AUTO,
                       help=f"what times screening, which only ranks: {IN_PROCESS} (proton in one launcher process "
                       "a GPU, which lives over the rounds), or a profiler's name; finals always run under --profiler "
                       f"(default: %(default)s, which is {IN_PROCESS} where proton runs)")  # fmt: skip
    group.add_argument(
        "--replay", metavar="DIR", type=Path, help="for --profiler replay: the raw folder of a run with --keep"
    )
    group.add_argument("--ngpus", type=positive, metavar="N", help="GPUs to use (default: 1)")
    group.add_argument("--gpu_ids", type=id_list, metavar="ID,ID", help="which GPUs to use, as torch numbers them")
    group.add_argument("--num_threads", type=worker_count, metavar="N", default=usable_cores(),
                       help="compile workers, which are processes; 0.9 is that share of the cores (default: all "
                       "that this process may use)")  # fmt: skip
    group.add_argument("--compile_limit", type=positive, metavar="S", default=60,
                       help="seconds one kernel may compile (default: %(default)s)")  # fmt: skip
    group.add_argument("--launch_limit", type=positive, metavar="S", default=60,
                       help="seconds one configuration may run before it is killed (default: %(default)s)")  # fmt: skip
    group.add_argument("--cluster", metavar="ray[:ADDRESS]",
                       help="compile on all machines of a Ray cluster and time on all of its GPUs: the cluster at this "
                       "address, else the one that runs here, else one of this machine (docs/cluster.md)")  # fmt: skip
    add_wait_flags(group)
    group.add_argument("--starts_per_round", "--jobs", type=positive, metavar="N", default=1,
                       help="profiler starts over which one GPU's share of a round of screening is dealt "
                       "(default: %(default)s)")  # fmt: skip
    group.add_argument("--warmup", type=not_negative, metavar="N", default=1,
                       help="calls of each configuration, and rounds of finals, that are not timed "
                       "(default: %(default)s)")  # fmt: skip
    group.add_argument("--iters", type=positive, metavar="N", default=30,
                       help="rounds of finals and of --benchmark while a size's noise is unknown; then a third to "
                       "eight times as many (default: %(default)s)")  # fmt: skip
    group.add_argument("--init_type", metavar="KIND", type=one_of(INIT_TYPES), default="randn",
                       help=f"values of A and B: {', '.join(INIT_TYPES)}; zeros run faster than real data "
                       "(default: %(default)s)")  # fmt: skip
    group.add_argument("--seed", type=not_negative, metavar="N", default=0, help="of the random values (default: 0)")
    group.add_argument("--rotating_tensor", type=not_negative, metavar="MB", default=0,
                       help="rotate through copies of A, B and C of MB MiB in all; 0 empties L2 before each "
                       "call instead (default: %(default)s)")  # fmt: skip
    group.add_argument("--no_compile_stage", "--no_warmup", action="store_true",
                       help="skip the compile stage: kernels compile in the profiled process, slowly")  # fmt: skip


def _output(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(*OUTPUT, "--tuning_results_file", metavar="FILE", type=output_file,
                       help="the tuned YAML (default: tuned.yaml in the run's folder)")  # fmt: skip
    group.add_argument("--output_dir", metavar="DIR", type=output_folder, default=DEFAULT_OUTPUT_DIR,
                       help="where each run makes a folder (default: %(default)s)")  # fmt: skip
    group.add_argument("--fresh", action="store_true",
                       help="start over; otherwise the same command goes on with a run that did not end")  # fmt: skip
    group.add_argument("--cache_limit", metavar="SIZE", type=size_bytes, default=size_bytes("20GiB"),
                       help="size to which the cache of compiled kernels is trimmed when a run ends; it is in the "
                       "user's cache folder, or in GEMM_TUNER_CACHE_DIR (default: 20GiB)")  # fmt: skip
    group.add_argument("--keep", action="store_true", help="keep the generated scripts and the profiler's raw output")
    group.add_argument("--verbose", action="store_true", help="print whole funnels and the time of each stage")
    group.add_argument("--time_breakdown", action="store_true", help="print the time of each stage")
