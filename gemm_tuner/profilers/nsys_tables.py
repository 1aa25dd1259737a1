"""Reads the kernels of an nsys recording from the two tables of its SQLite export that name and time them.

Unlike ``nsys stats``, ``nsys export`` of two tables neither writes all API calls first, nor has a script write a line
of text for each kernel.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from gemm_tuner.profilers.base import MAX_ROWS, TRACE_COLUMNS, in_time_order, no_kernels, refuse_number, unreadable

if TYPE_CHECKING:
    import pandas as pd

KERNELS, STRINGS = TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "StringIds")
NAMES = f"SELECT id, value FROM {STRINGS} WHERE id IN (SELECT demangledName FROM {KERNELS})"
ROWS = f'SELECT demangledName, start, "end" - start FROM {KERNELS} ORDER BY start'


def read_tables(path: Path) -> pd.DataFrame:
    """The kernels, with TRACE_COLUMNS; the name of one is that of the report cuda_gpu_trace. Raises TraceError."""
    import pandas as pd

    names: list[str] = []
    starts_ns: list[int] = []
    took_ns: list[int] = []
    for name, start_ns, took in _rows(path):  # column by column: a screening has 100 000
        names.append(name)
        starts_ns.append(start_ns)
        took_ns.append(took)
    refuse_number(path, len(names))
    if len({*zip(starts_ns, names, strict=True)}) < len(names):  # as ``tables.refuse_repeated``
        (start_ns, name), _ = Counter(zip(starts_ns, names, strict=True)).most_common(1)[0]
        raise unreadable(path, None, f"{name!r} is listed twice at {start_ns}", accepted="each launch once")
    columns = pd.Series(names, dtype=object), starts_ns, took_ns, "", ""
    return in_time_order(pd.DataFrame(dict(zip(TRACE_COLUMNS, columns, strict=True))))


def _rows(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, start and duration of each kernel in order of start, one more than may be read at most."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if KERNELS not in there:  # it is created with its first row
                raise no_kernels(path)
            names = dict(database.execute(NAMES))
            for number, start_ns, took_ns in itertools.islice(database.execute(ROWS), MAX_ROWS + 1):
                name = names.get(number)
                if not isinstance(name, str) or not name or not isinstance(took_ns, int) or took_ns < 0:
                    raise unreadable(path, None, f"a kernel named {name!r} that began at {start_ns} took {took_ns} ns")
                yield name, start_ns, took_ns
    except sqlite3.Error as error:
        raise unreadable(path, None, f"the file is no database of nsys: {error}") from error
