"""The argument parser of all commands: uniform spelling of flags, one-line errors, help that fits the terminal."""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
import textwrap
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

from gemm_tuner.cli.commands import SUBCOMMANDS
from gemm_tuner.core.errors import UserError
from gemm_tuner.system import program
from gemm_tuner.system.documents import show

# argparse's message for a flag without a value.
NO_VALUE = "expected one argument"
# Words that users may type as a subcommand, with what they probably want.
_NO_SUBCOMMANDS = {
    "help": "tune_gemm.py --help lists flags and subcommands; each subcommand has a --help of its own",
    "tune": "flags alone tune: tune_gemm.py --gemm_size_file FILE",
    "version": "tune_gemm.py --version",
}


class HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs to the terminal's width between words; indented lines, such as commands, are not wrapped."""

    brief = False

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for is_paragraph, group in itertools.groupby(text.splitlines(), lambda line: line[:1] not in ("", " ")):
            part = list(group)
            lines += _wrapped(" ".join(part), width - len(indent)) if is_paragraph else part
        return "\n".join(indent + line if line else "" for line in lines)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(" ".join(text.split()), width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """All spellings (in brief help up to the first long one), followed by the value's name once."""
        names = list(action.option_strings)
        if not names:
            return super()._format_action_invocation(action)
        if self.brief:
            names = names[: 1 + next((i for i, name in enumerate(names) if name.startswith("--")), 0)]
        value = "" if action.nargs == 0 else self._format_args(action, action.dest.upper())
        return " ".join(filter(None, (", ".join(names), value)))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 11), break_long_words=False, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError instead of printing the usage and exiting.

    subcommand: "" for the main command.
    everyday:   dests that --help shows; empty for all. If not empty, --help_all shows all.
    examples:   additional commands that --help_all shows.
    Texts use the name tune_gemm.py; it is replaced by the actual command name when printed.
    """

    def __init__(
        self,
        subcommand: str,
        description: str,
        epilog: str,
        *,
        usage: str | None = None,
        everyday: Collection[str] = (),
        examples: str = "",
    ) -> None:
        super().__init__(
            prog=f"{program.SCRIPT} {subcommand}".strip(),
            usage=usage,
            description=description,
            epilog=epilog,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.everyday, self.examples = frozenset(everyday), examples
        # What to do in place of flags that this command lacks, by flag.
        self.instead: dict[str, str] = {}
        self._words: list[str] = []
        self.add_argument("-h", "--help", action=_Help, nargs=0, help="print this help and stop")
        if everyday:
            self.add_argument("--help_all", action=_Help, nargs=0, help="print the help of all flags")

    def error(self, message: str) -> NoReturn:
        about = re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL)
        if about is None:
            raise UserError(message, hint=self._see_help())
        spellings = about[1].split("/")
        typed = [name for name in spellings if any(word.partition("=")[0] == name for word in self._words)]
        what = about[2].replace("ignored explicit argument", "takes no value, and has")
        if what == NO_VALUE:
            action = next(one for one in self._actions if spellings[0] in one.option_strings)
            told = self._get_formatter()._expand_help(action)
            raise UserError("needs a value", where=typed[0] if typed else spellings[0],
                            accepted=f"{action.metavar or action.dest.upper()}: {told}")  # fmt: skip
        raise UserError(what, where=typed[0] if typed else spellings[0])

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Parses flags. The result has ``given``: the flags on the command line, by dest, as typed.

        Raises UserError; for an unknown flag it names the most similar one.
        """
        known = {name: action.dest for action in self._actions for name in action.option_strings}
        self._words = underscored(argv, known)
        arguments, unknown = self.parse_known_args(self._words)
        if not unknown:
            names = [word.partition("=")[0] for word in self._words]
            typed = [word.partition("=")[0] for word in argv]
            arguments.given = {
                known[name]: as_typed for name, as_typed in zip(names, typed, strict=True) if name in known
            }
            return arguments
        word = unknown[0].partition("=")[0]
        if word in self.instead:
            raise UserError(f"unknown flag {word}", hint=program.as_called(self.instead[word]))
        if not word.startswith("-"):
            raise UserError(f"unexpected argument {show(word)}", hint=about_word(word))
        flags = {flag.lstrip("-"): flag for flag in known}
        near = difflib.get_close_matches(word.lstrip("-")[:60], flags, 1)
        hint = f"did you mean {flags[near[0]]}?" if near else self._see_help(all_flags=True)
        raise UserError(f"unknown flag {word if word.isprintable() else show(word)}", hint=hint)

    def _see_help(self, *, all_flags: bool = False) -> str:
        """A hint to the help flag of this parser."""
        return see_help(all_flags=all_flags) if self.everyday else program.as_called(f"{self.prog} --help lists them")

    def format_help(self, *, every: bool = True) -> str:
        formatter = self._get_formatter()
        every = every or not self.everyday
        if isinstance(formatter, HelpFormatter):
            formatter.brief = not every
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            shown = [a for a in group._group_actions if every or a.dest in self.everyday]
            if shown:
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(shown)
                formatter.end_section()
        formatter.add_text(self.examples if every else None)
        formatter.add_text(self.epilog)
        return program.as_called(formatter.format_help())


class _Help(argparse.Action):
    """Prints the help; --help_all prints every flag."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, __: object, option_string: str | None = None) -> Any:
        assert isinstance(parser, Parser)
        print(parser.format_help(every=option_string == "--help_all"), end="")
        parser.exit()


def see_help(*, all_flags: bool = False) -> str:
    """A hint to the help flag of the main command."""
    return "--help_all lists all flags" if all_flags else "--help lists the usual flags and all subcommands"


def about_word(word: str) -> str:
    """A hint for a word that is not a flag: what the user probably wants."""
    if word in SUBCOMMANDS:
        return f"a subcommand comes first: {program.name()} {word} ..."
    if word.endswith((".yaml", ".yml")):
        return "name a file of sizes by --gemm_size_file"
    known = {**{name: f"did you mean the subcommand {name}?" for name in SUBCOMMANDS}, **_NO_SUBCOMMANDS}
    near = difflib.get_close_matches(word[:60], known, 1)
    return program.as_called(known[near[0]]) if near else see_help()


def underscored(argv: Iterable[str], flags: Collection[str] = ()) -> list[str]:
    """Replaces '-' by '_' in long flags: ``--gemm-size-file=x`` becomes ``--gemm_size_file=x``, -dtype-a -dtype_a.

    A word with a single dash is changed only if the result is one of ``flags``; ``-omy-file`` is not changed.
    """
    spelt = []
    for argument in argv:
        flag, equals, value = argument.partition("=")
        dashes = re.match("--?(?=[A-Za-z]{2})", flag)
        if dashes:
            respelt = dashes[0] + flag[dashes.end() :].replace("-", "_")
            flag = respelt if dashes[0] == "--" or respelt in flags else flag
        spelt.append(flag + equals + value)
    return spelt
