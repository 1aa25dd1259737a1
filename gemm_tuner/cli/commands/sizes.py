"""``tune_gemm.py sizes``: makes a size file from files of other tools, or from a model's config.json."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import number_list, one_of, output_file, positive
from gemm_tuner.cli.moe_layer import in_dense_types
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import OUTPUT
from gemm_tuner.core.dtypes import INPUT_DTYPES
from gemm_tuner.core.errors import EXIT_OK, UserError
from gemm_tuner.gemm.problem import SCALINGS
from gemm_tuner.gemm.problem_keys import problem_row
from gemm_tuner.gemm.size_sources import collect
from gemm_tuner.gemm.size_sources.aiter import OPERATORS
from gemm_tuner.gemm.size_sources.collect import SOURCES, Sizes
from gemm_tuner.gemm.size_sources.found import USUAL_M, CollectOptions
from gemm_tuner.moe import model_config
from gemm_tuner.moe.problem import FP8, MoeProblem, check
from gemm_tuner.moe.servers import GRID, SERVERS
from gemm_tuner.system.documents import write_text_atomically
from gemm_tuner.system.terminal_table import print_line

DESCRIPTION = """\
Writes the sizes that a file names as a size file for --gemm_size_file: TunableOp's untuned CSV, AITER's untuned CSV, a
log of vLLM, SGLang or AITER with "config not found" lines, or a model's config.json. What the file is shows in its
content. A size that is named twice is written once; what cannot be expressed is named with its line and left out.
"""
EXAMPLES = """\
examples:
  tune_gemm.py sizes --from tunableop_untuned0.csv -o sizes.yaml
  tune_gemm.py sizes --from server.log --m 1,16,64,1024 -o sizes.yaml
  tune_gemm.py sizes --from config.json --tp 8 --lm_head -o sizes.yaml
  fp8 of MI300
    tune_gemm.py sizes --from a8w8_blockscale_untuned_gemm.csv \\
        --fp8 fp8_e4m3_fnuz -o sizes.yaml
  then tune them
    tune_gemm.py --gemm_size_file sizes.yaml

exit status: 0 there are sizes; 2 the command line or the file is wrong, or no size can be expressed; 3 the size file
cannot be written.
"""


def add_flags(parser: Parser) -> None:
    parser.add_argument("--from", metavar="FILE", dest="source", type=Path, required=True, help="the file to read")
    parser.add_argument("--format", metavar="KIND", type=one_of(SOURCES),
                        help=f"what it is: {', '.join(SOURCES)} (default: by its content)")  # fmt: skip
    parser.add_argument(*OUTPUT, metavar="FILE", type=output_file, help="the size file (default: printed)")
    parser.add_argument("--m", metavar="M,M", type=number_list, help="rows of A, where the file gives N and K "
                        f"alone, and tokens of --moe (default: {','.join(map(str, USUAL_M))}; of --moe vLLM's "
                        f"{len(GRID)}, {GRID[0]} to {GRID[-1]})")  # fmt: skip
    parser.add_argument("--fp8", metavar="TYPE", type=one_of(FP8),
                        help="what fp8 is where the file says no more: fp8_e4m3, or fp8_e4m3_fnuz for MI300 (default: "
                        "by a log's device_name, else fp8_e4m3)")  # fmt: skip
    parser.add_argument("--aiter_op", metavar="OP", type=one_of(OPERATORS), help="AITER's operator, where "
                        f"neither columns nor the file's name say it: {', '.join(OPERATORS)}")  # fmt: skip
    parser.add_argument("--dtype", metavar="TYPE", type=one_of((*INPUT_DTYPES, "fp8")), help="type of A "
                        "and B, and of the experts of --moe, in place of what config.json says, or where a CSV of "
                        "AITER is silent")  # fmt: skip
    model = parser.add_argument_group("a model's config.json")
    model.add_argument("--tp", metavar="N", type=positive, default=1, help="ranks that share each layer (default: 1)")
    model.add_argument("--lm_head", action="store_true", help="with the output layer")
    model.add_argument("--experts", action="store_true", help="of a mixture of experts, with one expert's layers at "
                       "its even share of the tokens")  # fmt: skip
    model.add_argument("--moe", action="store_true", help="also its fused MoE layer, for moe")  # fmt: skip
    model.add_argument("--scaling", metavar="KIND", type=one_of(SCALINGS),
                       help="scales, in place of what config.json says")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    """Runs the command. Raises UserError for a file without sizes, EnvironmentFault if the output cannot be written."""
    options = CollectOptions(
        m_values=arguments.m or USUAL_M,
        fp8=arguments.fp8 or "",
        op=arguments.aiter_op or "",
        dtype=arguments.dtype or "",
        scaling=arguments.scaling or "",
        tp=arguments.tp,
        lm_head=arguments.lm_head,
        experts=arguments.experts,
        moe=arguments.moe,
    )
    sizes = collect.collect(arguments.source, options, arguments.format or "")
    layers = moe_layers(arguments) if arguments.moe else []
    lines = ["# Fused MoE layers: tune_gemm.py moe --from THIS_FILE --kernel_from PATH", *map(moe_line, layers)]
    text = collect.size_file(sizes, arguments.source) + ("\n".join(lines) + "\n" if layers else "")
    for remark in sizes.remarks:
        print_line(shown.log, remark.one_line())
    if arguments.output:
        write_text_atomically(arguments.output, text)
    if arguments.json:
        print(json.dumps({**document(sizes), **({"moe": layers} if arguments.moe else {})}, indent=1))
    elif not arguments.output:
        shown.out.print(text, markup=False, highlight=False, soft_wrap=True, end="")
    twice = f", {sizes.duplicates} said more than once" if sizes.duplicates else ""
    to = f" in {arguments.output}" if arguments.output else ""
    left_out = sum(not remark.kept for remark in sizes.remarks)
    count = f"{len(sizes.problems) + len(layers)} sizes out of {SOURCES[sizes.source].what}{to}{twice}"
    print_line(shown.log, f"{count}; {left_out} left out")
    return EXIT_OK


def moe_layers(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a model's MoE layer, one a number of tokens. Raises UserError for a model without MoE layers."""
    layer = model_config.read(arguments.source, is_typed=bool(arguments.dtype))
    layer = model_config.share(layer, arguments.tp, experts=False)
    if arguments.dtype or (arguments.scaling and layer.dtype == "fp8_w8a8"):
        layer = in_dense_types(layer, arguments.dtype or "fp8", arguments.scaling or "none")
    if not layer.dtype:
        raise UserError(layer.reason, where=str(arguments.source), hint="--dtype names what is to be tuned")
    fp8 = arguments.dtype if arguments.dtype in FP8 else arguments.fp8 or "fp8_e4m3"
    one = MoeProblem(SERVERS["vllm"].name, 1, layer.E, layer.N, layer.K, layer.topk, layer.dtype, layer.out,
                     layer.scaling, layer.block_shape, layer.activation, layer.bias, fp8,
                     zero_points=layer.zero_points)  # fmt: skip
    check(one, str(arguments.source))
    return [said(one.at(tokens)) for tokens in arguments.m or GRID]


def said(problem: MoeProblem) -> dict[str, Any]:
    """The keys of a row that are not at their defaults."""
    plain = MoeProblem(problem.server, 1, 1, 1, 1, 1).row()
    sizes = ("kind", "server", "M", "E", "N", "K", "topk")
    return {key: value for key, value in problem.row().items() if key in sizes or value != plain[key]}


def moe_line(row: dict[str, Any]) -> str:
    return f"- {{{', '.join(f'{key}: {json.dumps(v) if not isinstance(v, str) else v}' for key, v in row.items())}}}"


def document(sizes: Sizes) -> dict[str, object]:
    return {
        "source": sizes.source,
        "sizes": [{**problem_row(problem), "for": list(origins)} for problem, origins in sizes.problems.items()],
        "duplicates": sizes.duplicates,
        "remarks": [{"line": r.line, "text": r.text, "why": r.why, "kept": r.kept} for r in sizes.remarks],
    }
