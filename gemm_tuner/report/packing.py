"""A table of configurations as compact JSON: 3000 rows of 30 columns in about 200 kB. page/data.js unpacks it."""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Sequence
from typing import Any

import pandas as pd

# A column of few distinct values is one character for each row.
CODES = string.digits + string.ascii_letters
# Longer texts are cut: every configuration can have a compiler message of a page.
MAX_TEXT = 400
SHARED_DIGITS = 2


def pack(table: pd.DataFrame) -> dict[str, Any]:
    """The names, front-coded, and every other column that has a value, in the smallest form of ``pack_column``."""
    names = [str(name) for name in table["name"]] if "name" in table else [""] * len(table)
    columns = {str(name): pack_column(_plain(table[name])) for name in table.columns if name != "name"}
    blank = {"all": None}
    return {
        "rows": len(table),
        "names": pack_names(names),
        "columns": {name: packed for name, packed in columns.items() if packed != blank},
    }


def pack_names(names: Sequence[str]) -> list[str]:
    """Each name as two hexadecimal digits, the length of the prefix shared with the name before, and the rest."""
    packed, before = [], ""
    for name in names:
        alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, name, strict=False))
        shared = min(sum(1 for _ in alike), 16**SHARED_DIGITS - 1)
        packed.append(f"{shared:0{SHARED_DIGITS}x}{name[shared:]}")
        before = name
    return packed


def pack_column(values: Sequence[Any]) -> dict[str, Any]:
    """One of four forms.

    {"all": v}               the same in every row
    {"rows": [..], "values": [..]}  the few rows that are not blank
    {"of": [..], "at": ".."} row i has of[CODES.index(at[i])]
    {"values": [..]}         row by row
    """
    distinct = list(dict.fromkeys(values))
    if len(distinct) <= 1:
        return {"all": distinct[0] if distinct else None}
    rows = [row for row, value in enumerate(values) if value is not None]
    if len(rows) * 4 < len(values):
        return {"rows": rows, "values": [values[row] for row in rows]}
    if len(distinct) <= len(CODES):
        code = dict(zip(distinct, CODES, strict=False))
        return {"of": distinct, "at": "".join(code[value] for value in values)}
    return {"values": list(values)}


def _plain(column: pd.Series) -> list[Any]:
    """The values for JSON: whole numbers as int, NaN and infinities as None."""
    return [_scalar(value) for value in column.tolist()]


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
    if value is None or value is pd.NA or not math.isfinite(value):
        return None
    if isinstance(value, bool):
        return value
    return int(value) if value == int(value) else round(float(value), 4)
