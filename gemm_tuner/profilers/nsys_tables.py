"""Reads the kernels of an nsys recording from the two tables of its SQLite export that name and time them.

Unlike ``nsys stats``, ``nsys export`` of two tables neither writes all API calls first, nor has a script write a line
of text for each kernel.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from gemm_tuner.profilers.base import Dispatch, no_kernels, to_frame, unreadable

if TYPE_CHECKING:
    import pandas as pd

KERNELS, STRINGS = TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "StringIds")
# The same name as that of the report cuda_gpu_trace. A kernel without a name is an error, which a join would hide.
QUERY = f"""
    SELECT value, start, "end" - start FROM {KERNELS} LEFT JOIN {STRINGS} ON {STRINGS}.id = demangledName ORDER BY start
"""


def read_tables(path: Path) -> pd.DataFrame:
    """The kernels, with TRACE_COLUMNS. Raises TraceError."""
    return to_frame(path, _dispatches(path))


def _dispatches(path: Path) -> Iterator[Dispatch]:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if KERNELS not in there:  # it is created with its first row
                raise no_kernels(path)
            seen: set[tuple[int, str]] = set()
            for name, start_ns, took_ns in database.execute(QUERY):
                if not isinstance(name, str) or not name or not isinstance(took_ns, int) or took_ns < 0:
                    raise unreadable(path, None, f"a kernel named {name!r} that began at {start_ns} took {took_ns} ns")
                if (start_ns, name) in seen:  # as ``tables.refuse_repeated``
                    raise unreadable(path, None, f"{name!r} is listed twice at {start_ns}", accepted="each launch once")
                seen.add((start_ns, name))
                yield Dispatch(name, start_ns, float(took_ns))
    except sqlite3.Error as error:
        raise unreadable(path, None, f"the file is no database of nsys: {error}") from error
