"""Converts a file of any known kind to a size file of the tuner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import problem_row
from gemm_tuner.gemm.size_sources import aiter, huggingface, logs, tunableop
from gemm_tuner.gemm.size_sources.found import CollectOptions, Found, Read, Remark
from gemm_tuner.system.input_files import printable, read_text

MAX_FILE_BYTES = 512 * 2**20  # a day's log of a busy server


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of file. what: its name for people. matches: whether a text is of this kind. read: extracts the sizes."""

    what: str
    matches: Callable[[str], bool]
    read: Callable[[str, CollectOptions, Path], Read]


# In the order in which they are tried; logs are last, because a log may quote any of the others.
SOURCES: dict[str, Source] = {
    "huggingface": Source("a model's config.json", huggingface.matches, huggingface.read),
    "aiter": Source("AITER's untuned CSV", aiter.matches, aiter.read),
    "tunableop": Source("TunableOp's untuned CSV", tunableop.matches, tunableop.read),
    "log": Source("a log of vLLM, SGLang or AITER", logs.matches, logs.read),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The collected sizes. problems: each problem once, with all its origins. duplicates: number of repetitions."""

    source: str
    problems: dict[GemmProblem, tuple[str, ...]]
    remarks: tuple[Remark, ...]
    duplicates: int


def collect(path: Path, options: CollectOptions, source: str = "") -> Sizes:
    """The sizes of a file. source: a key of SOURCES; "" detects the kind from the content.

    Raises UserError for a file of unknown kind, or without any size that can be expressed.
    """
    text = read_text(path, "file", "text", MAX_FILE_BYTES)
    name = source or next((name for name, one in SOURCES.items() if one.matches(text)), "")
    accepted = ", ".join(f"{one.what} ({name})" for name, one in SOURCES.items())
    if not name:
        raise UserError("holds nothing that is known here", where=printable(path), accepted=accepted)
    read = SOURCES[name].read(text, options, path)
    if not read.found:
        first = next((remark.one_line() for remark in read.remarks), f"no line of {SOURCES[name].what}")
        raise UserError(f"holds no size that can be tuned: {first}", where=printable(path), accepted=accepted)
    problems = _merged(read.found)
    return Sizes(name, problems, read.remarks, len(read.found) - len(problems))


def _merged(found: tuple[Found, ...]) -> dict[GemmProblem, tuple[str, ...]]:
    """Each problem once, in the order of the file, with all its origins."""
    merged: dict[GemmProblem, tuple[str, ...]] = {}
    for one in found:
        known = merged.get(one.problem, ())
        merged[one.problem] = known if one.origin in known else (*known, one.origin)
    return merged


def size_file(sizes: Sizes, path: Path) -> str:
    """The text of a size file: one line per size, with all keys explicit, so that no flag changes its meaning."""
    lines = [f"# Sizes out of {path.name!a} by tune_gemm.py sizes, as {SOURCES[sizes.source].what}."]
    before: tuple[str, ...] = ()
    for problem, origins in sizes.problems.items():
        named = tuple(origin for origin in origins if not origin.startswith("line "))
        if named and named != before:
            lines.append(f"# {', '.join(named)}")
        before = named
        lines.append(f"- {{{', '.join(f'{key}: {_plain(value)}' for key, value in problem_row(problem).items())}}}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
