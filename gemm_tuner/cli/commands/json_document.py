"""The JSON document of a subcommand whose result is an answer: printed with --json, written to the file of -o."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gemm_tuner.cli.parser import Parser
from gemm_tuner.system.documents import write_text_atomically


def add_flags(parser: Parser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the JSON document to this file, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def put(document: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Raises EnvironmentFault for a file that cannot be written."""
    text = json.dumps(document, indent=1, default=str)
    if arguments.output:
        write_text_atomically(arguments.output, text + "\n")
    if arguments.json:
        print(text)
