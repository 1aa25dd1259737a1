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
error; `--json` makes a subcommand print one JSON document. Percentages are `2%`, `2 %` or `2`; a bare `0.02`
is refused: it could be a share. Examples, and the exit status of each subcommand, are in the help.
What a subcommand shares with tuning is listed there only.
`python docs/make_cli.py` writes this page from the parsers.
"""
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
        parts.append(section(parser, f"{what}, with the flags of tuning" if tunes else what, shared))
    return "\n".join(parts)


def section(parser: Parser, what: str, but: Collection[str] = ()) -> str:
    """A parser's flags, group by group, that of tuning with its exit status. but: rows that are left out."""
    tables: dict[str, list[str]] = {}
    for group in parser._action_groups:
        title = "flag" if group.title in ("options", "positional arguments") else group.title or "flag"
        rows = [row(action) for action in group._group_actions if is_shown(action)]
        tables.setdefault(title, []).extend(one for one in rows if one not in but)
    parts = [f"## {parser.prog}\n\n{what[0].upper()}{what[1:]}.\n"]
    parts += ["\n".join([f"{title} | meaning", "--- | ---", *rows]) + "\n" for title, rows in tables.items() if rows]
    status = re.search(r"exit status: (.*)", parser.epilog or "", re.DOTALL)
    if status and parser.everyday:
        parts.append(f"Exit status: {' '.join(status[1].split())}\n")
    return "\n".join(parts)


def is_shown(action: argparse.Action) -> bool:
    return bool(action.help) and not set(EXPLAINED) & set(action.option_strings)


def row(action: argparse.Action) -> str:
    """A line of a table: all spellings with the name of the value, and the help on one line."""
    formatter = argparse.HelpFormatter("")
    flags = ", ".join(action.option_strings)
    value = "" if action.nargs == 0 else formatter._format_args(action, action.dest.upper())
    return f"`{' '.join(filter(None, (flags, value)))}` | {' '.join(formatter._expand_help(action).split())}"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), encoding="utf-8")
