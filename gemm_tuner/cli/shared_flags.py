"""Flags that several commands have in common, and their interpretation."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gemm_tuner.cli.flag_types import duration_s, output_file
from gemm_tuner.system.documents import write_text_atomically

# The spellings of the flag that names the output file or folder, in every command that has one.
OUTPUT = ("-o", "--output", "--o")


def add_wait_flags(group: argparse._ActionsContainer) -> None:
    """Adds ``--wait`` and ``--no_wait``: how long to wait while another process uses the GPU."""
    one = group.add_mutually_exclusive_group()
    one.add_argument("--wait", metavar="TIME", type=duration_s, help="how long to wait for a GPU that another "
                     "process measures on, such as 10m (default: until it is free)")  # fmt: skip
    one.add_argument("--no_wait", action="store_true", help="end with status 3 when a GPU is in use")


def wait_s(arguments: argparse.Namespace) -> float | None:
    """Time to wait, seconds; None for no limit."""
    return 0.0 if arguments.no_wait else arguments.wait


def add_document_flags(parser: argparse.ArgumentParser) -> None:
    """Adds ``--output`` and ``--json``, for subcommands that print a result."""
    parser.add_argument(*OUTPUT, metavar="FILE", type=output_file, help="write the JSON document to this file, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def put_document(document: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Writes or prints a document according to these flags. Raises EnvironmentFault if it cannot be written."""
    text = json.dumps(document, indent=1, default=str)
    if arguments.output:
        write_text_atomically(arguments.output, text + "\n")
    if arguments.json:
        print(text)
