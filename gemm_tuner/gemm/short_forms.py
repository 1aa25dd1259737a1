"""Short forms of GEMMs and of their configurations for tables. They are for display, and what --explain is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gemm_tuner.core.records import Problem
from gemm_tuner.gemm.config import AMD_NAME_PARTS, FAMILY_NAME_PARTS, NAME_PARTS
from gemm_tuner.gemm.problem import Layout, as_gemm
from gemm_tuner.gemm.problem_keys import dtype_c_for

_NAME = re.compile(r"(?:gemm_)?(?P<family>\w+?)_BM(?P<m>\d+)_BN(?P<n>\d+)_BK(?P<k>\d+)(?P<rest>(?:_[A-Z]+\d+)*)")
_FIELD = re.compile(r"_([A-Z]+)(\d+)")
_SHORT_FORM = re.compile(r"(?P<family>\w+) (?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?P<group> gm\d+)(?P<rest>(?: [a-z]+\d+)*)")
_BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
_SHORT = {field: short.lower() for field, short in (*NAME_PARTS, *AMD_NAME_PARTS) if field not in _BLOCKS}
_SHOWN_IN_LEGEND = (*_BLOCKS, "GROUP_SIZE_M", "num_warps", "num_stages")
_FURTHER = (*NAME_PARTS, *FAMILY_NAME_PARTS, *AMD_NAME_PARTS)
CONFIG_LEGEND = (
    "tile 128x256x64 gm8 w8 s3: family gemm_tile, BLOCK_SIZE_M x N x K, GROUP_SIZE_M, num_warps, num_stages; "
    "further fields where they are used: "
    + ", ".join(f"{short.lower()} {field}" for field, short in _FURTHER if field not in _SHOWN_IN_LEGEND)
)
_UNUSED_IN_ENTRIES = {"SPLIT_K": 1, "NUM_KSPLIT": 1, "cache_modifier": None}
MEANINGS = {
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


def whole_names(short: str) -> tuple[str, ...]:
    """The names that have this short form, with and without the ``gemm_`` of most families; empty for other texts."""
    match = _SHORT_FORM.fullmatch(short)
    if match is None:
        return ()
    split = "" if match["rest"].startswith(" sk") else " sk1"
    fields = f"{match['group']}{split}{match['rest']}".upper().replace(" ", "_")
    name = f"{match['family']}_BM{match['m']}_BN{match['n']}_BK{match['k']}{fields}"
    return name, f"gemm_{name}"


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


def label_parts(problem: Problem) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """``Workload.label_parts``. The type of C is included only if it is not the default for A's type."""
    problem = as_gemm(problem)
    inputs = problem.dtype_a if problem.dtype_a == problem.dtype_b else f"{problem.dtype_a}*{problem.dtype_b}"
    parts = (
        inputs if problem.dtype_c == dtype_c_for(problem) else f"{inputs}->{problem.dtype_c}",
        "".join("n" if layout == Layout.ROW else "t" for layout in (problem.layout_a, problem.layout_b)),
        "tf32" if problem.precision == "tf32" else "",
        f"scale_{problem.scaling}" if problem.scaling != "none" else "",
        f"alpha={problem.alpha!r}" if problem.has_alpha else "",
        f"beta={problem.beta!r}" if problem.reads_c else "",
        "bias" if problem.bias else "",
        problem.activation if problem.activation != "none" else "",
    )
    return (), problem.shape.replace(" of ", "x").replace(" ", ""), parts
