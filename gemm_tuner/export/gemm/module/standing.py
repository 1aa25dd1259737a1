"""Reads the sizes of a module that an earlier export wrote, for an export that would replace it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gemm_tuner.export.assignments import assignments
from gemm_tuner.export.gemm.module.rows import Tuned
from gemm_tuner.system.documents import MAX_FILE_BYTES
from gemm_tuner.system.input_files import read_text

PREDICTED = "predicted"


def yields(path: Path, tuned: Iterable[Tuned]) -> str:
    """Why a module with these sizes does not replace the file that is there; "" if it does. Where predictions are among
    them, every size of the file that was measured must be one that was measured."""
    ours = {(one.product.signature, *_size(one)): one.source != PREDICTED for one in tuned}
    if all(ours.values()) or not path.is_file():
        return ""
    theirs = _measured(path)
    if theirs is None:
        return f"{path.name} is of unknown origin, and predictions do not replace it; --overwrite does"
    lost = sum(not ours.get(size) for size in theirs)
    sizes = f"{lost} size{'s' if lost > 1 else ''}"
    return f"{path.name} has {sizes} measured, and predictions do not replace it; --overwrite does" if lost else ""


def _size(one: Tuned) -> tuple[int, int, int, int, str]:
    """As a row of TUNED begins."""
    return one.problem.m, one.problem.n, one.problem.k, one.problem.batch, one.epilogue


def _measured(path: Path) -> set[tuple[Any, ...]] | None:
    """(class, M, N, K, batch, epilogue) of the rows of TUNED that are not predicted; None for a file that is no
    module."""
    text = read_text(path, "module", "Python", MAX_FILE_BYTES)
    lines = text.encode().split(b"\n")
    try:
        assigned = assignments(text)
        of_all, tuned = ast.literal_eval(assigned["HEADER"])["source"], assigned["TUNED"]
        rows = [
            (ast.literal_eval(kind), row) for kind, of in zip(tuned.keys, tuned.values, strict=True) for row in of.elts
        ]
        sources = [lines[row.end_lineno - 1][row.end_col_offset :].decode().partition("# ")[2] for _, row in rows]
        sizes = [(kind, *ast.literal_eval(row)[:5]) for kind, row in rows]
    except (SyntaxError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return {size for size, source in zip(sizes, sources, strict=True) if (source.strip() or of_all) != PREDICTED}
