"""Short forms of sizes and configurations for tables. They are for display only, never for lookup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gemm_tuner.core.records import Problem
from gemm_tuner.gemm.config import AMD_NAME_PARTS, NAME_PARTS
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.problem_keys import dtype_c_for

_NAME = re.compile(r"(?:gemm_)?(?P<family>\w+?)_BM(?P<m>\d+)_BN(?P<n>\d+)_BK(?P<k>\d+)(?P<rest>(?:_[A-Z]+\d+)*)")
_FIELD = re.compile(r"_([A-Z]+)(\d+)")
_BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
_SHORT = {field: short.lower() for field, short in (*NAME_PARTS, *AMD_NAME_PARTS) if field not in _BLOCKS}
_UNUSED_IN_ENTRIES = {"SPLIT_K": 1, "NUM_KSPLIT": 1, "cache_modifier": None}
_MEANINGS = {
    "nn": "A row-major, B row-major",
    "nt": "A row-major, B column-major",
    "tn": "A column-major, B row-major",
    "tt": "A column-major, B column-major",
    "bias": "a vector of N values is added to every row of C",
    "tf32": "fp32 operands are multiplied as tf32",
    "scale_tensor": "one scale for A, one for B",
    "scale_row_col": "one scale a row of A and a column of B",
    "scale_block": "one scale for 1 x 128 values of A and 128 x 128 of B",
}


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of the sizes of one table.

    common: what all sizes have in common, for the table's title, such as ``bf16 nn``; empty for a single size.
    of:     the rest for each size, such as ``4096x4096x4096``; unique, if need be a key.
    """

    common: str
    of: Mapping[Problem, str]


def labels(problems: Iterable[Problem]) -> Labels:
    """The labels of sizes that are shown in one table."""
    parts = {problem: _parts(problem) for problem in problems}
    places = list(zip(*parts.values(), strict=True)) if len(parts) > 1 else []
    shared = [len(set(values)) == 1 for values in places]
    common = [values[0] for values, same in zip(places, shared, strict=True) if same and values[0]]
    of = {}
    for problem, values in parts.items():
        own = [value for place, value in enumerate(values) if value and not (shared and shared[place])]
        words = [_shape(problem), *own] if isinstance(problem, GemmProblem) else [*own, _shape(problem)]
        of[problem] = " ".join(filter(None, words))  # a host function without arguments has no shape
    counts = Counter(of.values())
    return Labels(" ".join(common), {one: text if counts[text] == 1 else one.key for one, text in of.items()})


def label(problem: Problem) -> str:
    """The label of a single size, such as ``4096x4096x4096 bf16 nn``."""
    return labels([problem]).of[problem]


def legend(problems: Iterable[Problem]) -> dict[str, str]:
    """The meanings of the abbreviations that occur in the labels of these sizes."""
    used = {part for problem in problems for part in _parts(problem)}
    return {part: meaning for part, meaning in _MEANINGS.items() if part in used}


def titled(what: str, source: str, device: str) -> str:
    """A title that says whether times were measured on a device, replayed, or predicted for it."""
    if source == "predicted":
        return f"{what} predicted for {device}"
    return f"{what} on {device}{', replayed' if source == 'replayed' else ''}"


def short_config(name: str) -> str:
    """A short form of a configuration's name, such as ``tile 128x256x64 gm8 w8 s3``; other texts are returned
    unchanged.

    The block sizes of M, N and K come first; SPLIT_K is left out if it is 1.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    fields = [f"{field.lower()}{value}" for field, value in _FIELD.findall(match["rest"]) if field + value != "SK1"]
    return " ".join([match["family"], f"{match['m']}x{match['n']}x{match['k']}", *fields])


def short_entry(entry: Mapping[str, object]) -> str:
    """A short form of an entry of a consumer's file, such as ``64x128x128 gm32 w4 s2``.

    Fields without a short name appear as ``name=value``; fields at the value that turns them off are left out.
    """
    blocks = [str(entry[key]) for key in _BLOCKS if key in entry]
    fields = [
        f"{_SHORT[key]}{value}" if key in _SHORT else f"{key}={value}"
        for key, value in entry.items()
        if (key not in _BLOCKS or len(blocks) < len(_BLOCKS))
        and not (key in _UNUSED_IN_ENTRIES and value == _UNUSED_IN_ENTRIES[key])
    ]
    return " ".join((["x".join(blocks)] if len(blocks) == len(_BLOCKS) else []) + fields)


def _shape(problem: Problem) -> str:
    return problem.shape.replace(" of ", "x").replace(" ", "") if isinstance(problem, GemmProblem) else problem.shape


def _parts(problem: Problem) -> tuple[str, ...]:
    """The properties of a problem besides its dimensions, one text each, "" for an unused property. The type of C is
    included only if it is not the default for A's type."""
    if not isinstance(problem, GemmProblem):
        return (problem.subject,)
    inputs = problem.dtype_a if problem.dtype_a == problem.dtype_b else f"{problem.dtype_a}*{problem.dtype_b}"
    return (
        inputs if problem.dtype_c == dtype_c_for(problem) else f"{inputs}->{problem.dtype_c}",
        "".join("n" if layout == Layout.ROW else "t" for layout in (problem.layout_a, problem.layout_b)),
        "tf32" if problem.precision == "tf32" else "",
        f"scale_{problem.scaling}" if problem.scaling != "none" else "",
        f"alpha={problem.alpha!r}" if problem.has_alpha else "",
        f"beta={problem.beta!r}" if problem.reads_c else "",
        "bias" if problem.bias else "",
        problem.activation if problem.activation != "none" else "",
    )
