"""The subcommands of ``tune_gemm.py``: one module each, imported on demand.

A module ``gemm_tuner.cli.commands.<name>`` (dashes become underscores) has DESCRIPTION and EXAMPLES for the help,
``add_flags(parser)``, and ``main(arguments, shown)``, which gets the parsed flags and the consoles and returns the exit
status.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from gemm_tuner.cli.parser import Parser

SUBCOMMANDS: dict[str, str] = {
    "kernel": "tune a Triton kernel of yours",
    "moe": "tune the fused MoE kernels of vLLM and SGLang for a model",
    "spec": "tune any program or command by a spec file",
    "collect": "make specs of the launches that gt.install() noted",
    "export": "write tuned configs as the files of vLLM, SGLang, AITER and more",
    "serve-check": "say which config a consumer gets from such files, for each M",
    "check": "say what this machine has, what is wrong and what mends it",
    "sizes": "make a size file of a CSV, a server's log or a config.json",
    "compare": "say which sizes became faster or slower between two results",
    "compact": "find the fewest configs that serve all sizes within a loss",
    "report": "show a run as an HTML page, in the terminal or as JSON",
}


@dataclass(frozen=True, slots=True)
class Consoles:
    """log: progress and messages, on standard error. out: results, on standard output."""

    log: Console
    out: Console


def build_parser(name: str) -> Parser:
    """The parser of a subcommand."""
    from gemm_tuner.cli.parser import Parser

    module = _module(name)
    parser = Parser(name, module.DESCRIPTION, module.EXAMPLES)
    module.add_flags(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def run(name: str, words: list[str], shown: Consoles) -> int:
    """Runs a subcommand and returns its exit status. words: its arguments. Raises UserError for invalid ones."""
    return int(_module(name).main(build_parser(name).parse(words), shown))


def _module(name: str) -> Any:
    return importlib.import_module(f"gemm_tuner.cli.commands.{name.replace('-', '_')}")
