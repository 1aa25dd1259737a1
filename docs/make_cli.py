"""Writes docs/cli.md, a table of the flags of tune_gemm.py and of every subcommand:  python docs/make_cli.py"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemm_tuner.cli.parser import Parser

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cli.md"
INTRODUCTION = """\
# The command line

Without a subcommand the flags tune. `-` and `_` mean the same in long flags, and every long flag takes two dashes.
`-h` or `--help` shows the usual flags, `--help_all` all of them, `--version` the version, `--debug` the traceback of an
error; `--json` makes a subcommand print one JSON document. Percentages are `2%`, `2 %` or `2`; `0.02` is
refused. Flags without a meaning here have it in `--help_all`, those of subcommands in
`SUBCOMMAND --help`, as are examples and exit statuses.
`python docs/make_cli.py` writes this page.
"""
# Groups of tuning whose flags are named only; --help_all has their meanings.
NAMED = ("compiling and timing", "output", "flags of ROCm's")
# Flags that the introduction explains, once for all commands.
EXPLAINED = ("-h", "--help_all", "--version", "--json", "--debug")


def page() -> str:
    """The page as the parsers are now."""
    from gemm_tuner.cli import options
    from gemm_tuner.cli.commands import SUBCOMMANDS, build_parser

    tuning = options.build_parser()
    shared = {row(action) for action in tuning._actions if is_shown(action)}
    parts = [INTRODUCTION, section(tuning, "tune a list of sizes")]
    for name, what in SUBCOMMANDS.items():
        parser = build_parser(name)
        tunes = "--search" in parser._option_string_actions
        parts.append(synopsis(parser, f"{what}, with the flags of tuning" if tunes else what, shared))
    return "\n".join(parts)


def synopsis(parser: Parser, what: str, but: Collection[str]) -> str:
    """A subcommand in one line, and its flags without their meanings. but: rows of flags that are left out."""
    flags = [spellings(action) for action in parser._actions if is_shown(action) and row(action) not in but]
    return f"## {parser.prog}\n\n{capital(what)}.\n\n{', '.join(f'`{flag}`' for flag in flags)}\n"


def section(parser: Parser, what: str) -> str:
    """A parser's flags, group by group, and its exit status."""
    parts = [f"## {parser.prog}\n\n{capital(what)}.\n"]
    for group in parser._action_groups:
        title = "flag" if group.title in ("options", "positional arguments") else group.title or "flag"
        shown = [action for action in group._group_actions if is_shown(action)]
        if shown and title.startswith(NAMED):
            parts.append(f"{capital(title)}: {', '.join(f'`{spellings(action)}`' for action in shown)}\n")
        elif shown:
            parts.append("\n".join([f"{title} | meaning", "--- | ---", *map(row, shown)]) + "\n")
    status = re.search(r"exit status: (.*)", parser.epilog or "", re.DOTALL)
    if status:
        parts.append(f"Exit status: {' '.join(status[1].split())}\n")
    return "\n".join(parts)


def is_shown(action: argparse.Action) -> bool:
    return bool(action.help) and not set(EXPLAINED) & set(action.option_strings)


def capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def row(action: argparse.Action) -> str:
    """A line of a table: all spellings, and the help on one line."""
    return f"`{spellings(action)}` | {' '.join(argparse.HelpFormatter('')._expand_help(action).split())}"


def spellings(action: argparse.Action) -> str:
    """All spellings of a flag with the name of its value."""
    flags = ", ".join(action.option_strings)
    value = "" if action.nargs == 0 else argparse.HelpFormatter("")._format_args(action, action.dest.upper())
    return " ".join(filter(None, (flags, value)))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), encoding="utf-8")
