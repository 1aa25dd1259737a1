"""Writes docs/cli.md, the --help of tune_gemm.py and of every subcommand:  python docs/make_cli.py"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cli.md"
WIDTH = 110
INTRODUCTION = """\
# The command line

What `--help_all`, and `--help` of the subcommands, print. `python docs/make_cli.py` writes this page, and a test
compares it with the parsers. In long flags `-` and `_` mean the same. Without a subcommand the flags tune.
"""


def page() -> str:
    """The page as the parsers are now, at a fixed width."""
    from gemm_tuner import options
    from gemm_tuner.commands import SUBCOMMANDS

    parsers = [options.build_parser()]
    for name in SUBCOMMANDS:
        parsers.append(importlib.import_module(f"gemm_tuner.commands.{name.replace('-', '_')}").build_parser())
    parts = [INTRODUCTION]
    for parser in parsers:
        parser.formatter_class = functools.partial(argparse.RawDescriptionHelpFormatter, width=WIDTH)
        text = "\n".join(line.rstrip() for line in parser.format_help().splitlines())
        parts.append(f"## {parser.prog}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), encoding="utf-8")
