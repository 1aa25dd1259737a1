"""``tune_gemm.py moe``: tunes servers' fused MoE kernels for a model; it accepts the flags of tuning."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gemm_tuner.cli import moe_layer, moe_results, options
from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import number_list, number_pair, one_of, positive
from gemm_tuner.cli.help_texts import EXIT_STATUS
from gemm_tuner.cli.moe_layer import dense_types, layer_of
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import wait_s
from gemm_tuner.consumers import SERVERS as SERVED_GEMMS
from gemm_tuner.consumers.moe import fault_of_name
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Problem
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.gemm.size_sources import collect
from gemm_tuner.gemm.size_sources.found import CollectOptions
from gemm_tuner.moe import kernel_source, problem, tuned_file
from gemm_tuner.moe.cute import CUTE
from gemm_tuner.moe.model_config import Layer
from gemm_tuner.moe.own import NAME, OWN
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import GRID, SERVERS
from gemm_tuner.space import space
from gemm_tuner.store.sizes import SizeEntry, load_file, sizes_of
from gemm_tuner.system.terminal_table import print_line

DESCRIPTION = """\
Tunes the fused MoE kernel of a server for one layer: both GEMMs of a call, in the server's own kernel, which is taken
from its source text and never imported, at the numbers of tokens that its tuned files have. The server's default stands
in all finals and is replaced only beyond noise. The export subcommand writes the servers' files. Without --serve this
package's own kernel is timed beside the server's; without --kernel_from it alone is tuned.
"""
EXAMPLES = f"""\
examples:
  DeepSeek-V3 on 8 ranks, with the installed vLLM's kernel
    tune_gemm.py moe --from config.json --tp 8 --kernel_from vllm -o moe.yaml
  by its sizes, N a rank's
    tune_gemm.py moe --E 256 --N 256 --K 7168 --topk 8 --dtype fp8_w8a8 \\
        --block_shape 128,128 --kernel_from fused_moe.py -o moe.yaml
  what would be tried
    tune_gemm.py moe --from config.json --tp 8 --serve vllm --dry_run
  for two servers, with operands, routing and reference in common
    tune_gemm.py moe --from config.json --kernel_from vllm=a.py \\
        --kernel_from sglang=b.py
  dense and MoE layers of a model, for all of vLLM's files
    tune_gemm.py moe --from config.json --dense --kernel_from vllm
  for skewed routing too
    tune_gemm.py moe --from config.json --kernel_from vllm --routing zipf:1.0
  do the times still hold?
    tune_gemm.py moe --from moe.yaml --kernel_from vllm --benchmark -o now.yaml

{EXIT_STATUS}"""


def add_flags(parser: Parser) -> None:
    parser.usage = (
        "tune_gemm.py moe (--from config.json | --E E --N N --K K --topk K)\n           [--kernel_from PATH] [flag ...]"
    )
    layer = parser.add_argument_group("the layer")
    layer.add_argument("--from", metavar="FILE", dest="source", type=Path, help="a model's config.json, as on Hugging "
                       "Face, whose experts are found by attribute names, nested ones too; or a size file of "
                       "sizes --moe, whose dense sizes are tuned first; with --benchmark and --compare_wo_tuning a "
                       "results file")  # fmt: skip
    layer.add_argument("--tp", metavar="RANKS", type=positive, help="ranks that share each expert of --from, or with "
                       "--enable_expert_parallel the experts (default: 1)")  # fmt: skip
    layer.add_argument("--dense", action="store_true", help="first the dense layers of config.json, into one results "
                       "file; block-scaled fp8 for the servers, too; --dtype is theirs, too, other than of "
                       "integers")  # fmt: skip
    layer.add_argument("--enable_expert_parallel", action="store_true", help="ranks have whole experts")
    layer.add_argument("--E", metavar="E", type=positive, help="experts of a rank")
    layer.add_argument("--global_experts", metavar="E", type=positive, help="experts of all ranks, over which tokens "
                       "are routed: rows of other ranks have the expert id -1, for which kernels write zeros (default: "
                       "all rows are of the rank's own experts, as after an all-to-all)")  # fmt: skip
    layer.add_argument("--N", metavar="N", type=positive, help="intermediate size of a rank: half the columns of w1 of "
                       "a gated activation")  # fmt: skip
    layer.add_argument("--K", metavar="K", type=positive, help="hidden size")
    layer.add_argument("--topk", metavar="K", type=positive, help="experts of a token")
    layer.add_argument("--m", metavar="M,M", type=number_list,
                       help=f"numbers of tokens (default: vLLM's {len(GRID)}, {GRID[0]} to {GRID[-1]})")  # fmt: skip
    layer.add_argument("--dtype", metavar="TYPE", type=one_of(problem.DTYPES), help="of weights and activations: "
                       f"{', '.join(problem.DTYPES)} (default: what --from says, else bf16)")  # fmt: skip
    layer.add_argument("--out", metavar="TYPE", type=one_of(problem.SIXTEEN_BIT), help="of tokens and results, of "
                       "quantised weights (default: what --from says, else bf16)")  # fmt: skip
    layer.add_argument(
        "--block_shape", metavar="ROWS,COLUMNS", type=number_pair, help="of fp8 weights with a scale a block"
    )
    layer.add_argument("--group_size", metavar="COLUMNS", type=positive, help="columns of a row of integer weights "
                       "that share a scale: the server's kernel for GPTQ and AWQ")  # fmt: skip
    layer.add_argument("--zero_points", action="store_true", help="groups of integers have zero points")
    layer.add_argument("--per_channel", action="store_true", help="fp8 with a scale a row of weights and a token "
                       "(default of fp8_w8a8: one scale a tensor)")  # fmt: skip
    layer.add_argument("--fp8", metavar="TYPE", type=one_of(problem.FP8), help="encoding of fp8 (default: fp8_e4m3, "
                       "for gfx940 to gfx942 fp8_e4m3_fnuz)")  # fmt: skip
    layer.add_argument("--activation", metavar="NAME", type=one_of(problem.ACTIVATIONS), help="between the GEMMs: "
                       f"{', '.join(problem.ACTIVATIONS)} (default: what --from says, else silu)")  # fmt: skip
    layer.add_argument("--bias", action="store_true", help="each expert adds a vector in both GEMMs (default: what "
                       "--from says)")  # fmt: skip
    layer.add_argument("--routing", metavar="KIND", action="append", default=[], help="how tokens choose experts: "
                       "uniform, balanced, zipf:S, dirichlet:A, or a .npy file of ids [tokens, topk]; may be given "
                       "again: configurations are chosen over all (default: uniform)")  # fmt: skip
    layer.add_argument("--seeds", metavar="N", type=positive, default=problem.SEEDS,
                       help="draws of each routing (default: %(default)s)")  # fmt: skip
    layer.add_argument("--current", metavar="FILE", type=Path, action="append", default=[], help="a tuned file of the "
                       "server for this layer: its entries stand in the finals, too, and are to be beaten by "
                       "--min_improvement; of two servers one each")  # fmt: skip
    layer.add_argument("--no_whole_calls", action="store_true", help="do not time whole calls, alignment to sum, of "
                       "what was tuned, of the default and of --current after the run (they are with -o; "
                       "none on a cluster)")  # fmt: skip
    parser.set_defaults(gemm_size_file=None, **dict.fromkeys(options.REPLACED, False))
    options.add_flags_of_a_run(parser)


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    from gemm_tuner.cli.main import run

    if moe_results.is_asked(arguments):
        return moe_results.run_again(arguments, shown)
    dense, found = dense_sizes(arguments), problems(arguments)
    lines = []
    if not moe_layer.is_size_file(arguments.source):
        lines.append(moe_layer.with_shared_experts(found, arguments))
        if arguments.m is None:
            arch = moe_layer.arch_of(arguments) if arguments.profiler == options.REPLAY else arguments.arch
            found, left_out = moe_layer.launched_in_triton(found, arch)
            lines.append(left_out)
    for line in filter(None, lines):
        print_line(shown.log, line)
    older = current(arguments, found)
    moe_layer.forget_servers(arguments)
    statuses, kind = [], moe_layer.kind_of_config(arguments.explain)
    if dense and kind != MoeProblem.kind:
        scaled = any(isinstance(one.problem, GemmProblem) and one.problem.scaling == "block" for one in dense)
        served = [name for name in dict.fromkeys(one.server for one in found) if name in SERVED_GEMMS]
        families, arguments.families = moe_layer.families_by_kind(arguments.families)
        changed = {"serve": served if scaled else [], "families": families}
        statuses.append(run(argparse.Namespace(**{**vars(arguments), **changed}), shown, dense))
        if kind == GemmProblem.kind:
            return max(statuses)
    statuses.append(run(arguments, shown, tuple(map(SizeEntry, found)), older))
    if not arguments.no_whole_calls:
        time_whole_calls(arguments, shown, found, older)
    return max(statuses)


def time_whole_calls(
    arguments: argparse.Namespace, shown: Consoles, found: list[MoeProblem], older: dict[Problem, Config]
) -> None:
    """After a run that tuned on a GPU of this machine, with a results file of its own name."""
    from gemm_tuner.report import moe_calls
    from gemm_tuner.store import results
    from gemm_tuner.system import gpu_lock

    if not tunes_here(arguments) or arguments.output is None or not arguments.output.exists():
        return
    header = results.read(arguments.output).header
    arch = str(header.get("arch", ""))
    device = space.load(space.space_path(arguments.rules, arch), arch).device
    some = moe_calls.layers(arguments.output, found, older, device)
    if some:
        gpu = arguments.gpu_ids[0] if arguments.gpu_ids else 0
        lock = moe_calls.lock_of(header, gpu)
        if lock is None:
            return
        held = gpu_lock.held([lock], wait_s(arguments), partial(print_line, shown.log))
        shown_to = shown.log, shown.out
        moe_calls.report(arguments.output, some, arguments.templates, device, gpu, os.environ, *shown_to, held=held)


def tunes_here(arguments: argparse.Namespace) -> bool:
    """Whether the flags ask for tuning on the GPUs of this machine."""
    elsewhere = arguments.cluster or arguments.profiler == options.REPLAY
    shows = arguments.dry_run or arguments.explain is not None
    return not (elsewhere or shows or arguments.compile_only or arguments.benchmark or arguments.compare_wo_tuning)


def dense_sizes(arguments: argparse.Namespace) -> tuple[SizeEntry, ...]:
    """The dense layers of a size file, or of a config.json with --dense. Raises UserError."""
    if moe_layer.is_size_file(arguments.source):
        entries = sizes_of(load_file(str(arguments.source)), Defaults()).entries
        return tuple(one for one in entries if isinstance(one.problem, GemmProblem))
    if not arguments.dense:
        return ()
    if arguments.source is None:
        raise UserError("needs a model's layers", where="--dense", accepted="--from config.json")
    dtype, scaling = dense_types(arguments)
    options = CollectOptions(m_values=arguments.m or GRID, tp=arguments.tp or 1, dtype=dtype, scaling=scaling,
                             fp8=moe_layer.fp8_of(arguments, matters=True), moe=True)  # fmt: skip
    return tuple(map(SizeEntry, collect.collect(arguments.source, options, "huggingface").problems))


def in_size_file(arguments: argparse.Namespace) -> list[MoeProblem]:
    """The MoE layers of a size file. Raises UserError if it has none, and for flags that describe a layer."""
    moe_layer.refuse_what_a_file_says(arguments)
    entries = sizes_of(load_file(str(arguments.source)), Defaults()).entries
    found = [one.problem for one in entries if isinstance(one.problem, MoeProblem)]
    if not found:
        accepted = "entries of kind moe, as sizes --moe writes them"
        raise UserError("has no MoE layer", where=str(arguments.source), accepted=accepted)
    moe_layer.require_one_kernel(found, arguments.source, "tune each in a run of its own")
    return found


def current(arguments: argparse.Namespace, found: list[MoeProblem]) -> dict[Problem, Config]:
    """The configurations that the servers' files give for each problem: the entry of the nearest M. Raises
    UserError."""
    paths: list[Path] = arguments.current
    if paths and any(one.server == NAME for one in found):
        accepted = "it beside --kernel_from or --serve, which say the server"
        raise UserError("is a server's tuned file, and no server is given", where="--current", accepted=accepted)
    by_server = dict(zip(dict.fromkeys(one.server for one in found), paths, strict=False))
    if len(paths) > len(by_server):
        raise UserError("is given more often than there are servers", where="--current", accepted="one file a server")
    for one in found:
        if one.server in by_server and (fault := fault_of_name(by_server[one.server].name, one)):
            accepted = f"the file of {one.shape.rpartition(' M=')[0]}, {one.dtype}"
            raise UserError(fault, where=f"--current {by_server[one.server]}", accepted=accepted)
    of_files = [one for one in found if one.server in by_server]
    # Only there it matters, and to look at the GPUs takes seconds.
    by_tma = any(SERVERS[one.server].has_tma(one, "cuda") for one in of_files)
    arch = moe_layer.arch_of(arguments) if by_tma else ""
    return {one: tuned_file.config_at(by_server[one.server], one, arch) for one in of_files}


def problems(arguments: argparse.Namespace) -> list[MoeProblem]:
    """The problems of the flags: every number of tokens for each server. Raises UserError."""
    in_file = in_size_file(arguments) if moe_layer.is_size_file(arguments.source) else []
    layer = None if in_file else layer_of(arguments)
    kernels = kernel_source.read_all(
        arguments.kernel_from, grouped=(in_file[0] if layer is None else layer).scaling == "group"
    )
    servers = list(dict.fromkeys((*kernels, *arguments.serve)))
    missing = [name for name in servers if name not in kernels]
    shows = arguments.dry_run or arguments.explain is not None
    if not shows and missing:
        raise kernel_source.none_given(missing[0])
    if unknown := [name for name in servers if name not in SERVERS]:
        accepted = ", ".join(SERVERS)
        raise UserError(f"{unknown[0]} has no fused MoE kernel in Triton here", where="--serve", accepted=accepted)
    families = [SERVERS[name].family for name in servers]
    ours = [one.family for one in (OWN, CUTE) if one.family in arguments.families]
    if untuned := [one for one in families if ours and one not in arguments.families]:
        what = f"{ours[0]} without {untuned[0]} leaves the server's rows its default"
        raise UserError(what, where="--families", accepted=",".join((*families, *ours)),
                        hint=f"without {kernel_source.FLAG} and --serve {ours[0]} alone is tuned")  # fmt: skip
    routing = tuple(dict.fromkeys(arguments.routing)) or (problem.UNIFORM,)
    drawn = {"routing": routing, "seeds": arguments.seeds}
    if layer is None:
        found = list(dict.fromkeys(replace(one, server=NAME, **drawn) for one in in_file))
    else:
        found = layers(layer, arguments, drawn)
    return [
        replace(one, server=server, kernel_sha=kernel.sha if kernel else "", kernel=kernel,
                beside=bool(servers) and not arguments.serve)
        for server, kernel in ((name, kernels.get(name)) for name in servers or [NAME])
        for one in found
    ]  # fmt: skip


def layers(layer: Layer, arguments: argparse.Namespace, drawn: dict[str, Any]) -> list[MoeProblem]:
    """A layer at each number of tokens. Raises UserError."""
    tokens_of_calls = arguments.m or GRID
    fp8 = moe_layer.fp8_of(arguments, matters=layer.dtype == "fp8_w8a8")
    one = MoeProblem(
        NAME, 1, layer.E, layer.N, layer.K, layer.topk, layer.dtype, layer.out, layer.scaling, layer.block_shape,
        layer.activation, layer.bias, fp8, zero_points=layer.zero_points, global_E=arguments.global_experts or 0,
        **drawn,
    )  # fmt: skip
    problem.check(one, "the layer")
    problem.check_tokens(max(tokens_of_calls), one.routed_E, "--m")
    return [one.at(tokens) for tokens in tokens_of_calls]
