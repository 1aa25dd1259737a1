"""Ways to spoil a file, as Hypothesis strategies: bytes, lines, separators, and the columns of a table."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# A fortieth by default: 2000 changes of a file are 10 CPU seconds. `make test-all` has all.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "50"))
# Derandomised: the same examples on every machine, so that a failure is the change's and not the day's.
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Where a reader has several tests, two of which come to as many examples.
FUZZ_PART = settings(FUZZ, max_examples=EXAMPLES // 2)
Edit = tuple[str, int, int, bytes]
AT = st.integers(0, 2**20)

SEPARATORS = (b",", b";", b"\t", b" ", b'"', b"\n", b"\r", b"\r\n", b"\n\n")
TOKENS = (
    *(b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", b"\xe2\x80\xa8", b"-", b".", b"e9", b"1e999", b"NaN"),
    *(b"null", b"true", b"[]", b"{}", b"[", b"{", b"]", b"}", b"'", b"\\", b"\\ud800", b"../../x", b"=="),
    *(b"&a ", b"*a", b"!!python/name:os.system ", b"<<: ", b"- ", b": ", b"#", b"%", b"? ", b"\xc2\xb2"),
    *(b"4611686018427387904", b"9" * 400, b"9" * 5000, b"[" * 1200, b"0x", b".inf", b".nan", b"-0.0", b"None"),
)


def flip(data: bytes, at: int, by: int, _: bytes) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ (1 << by % 8)]) + data[at + 1 :]


def delete(data: bytes, at: int, by: int, _: bytes) -> bytes:
    at %= len(data)
    return data[:at] + data[at + 1 + by % 40 :]


def insert(data: bytes, at: int, _: int, text: bytes) -> bytes:
    at %= len(data) + 1
    return data[:at] + text + data[at:]


def replace(data: bytes, at: int, by: int, text: bytes) -> bytes:
    at %= len(data)
    return data[:at] + text + data[at + 1 + by % 8 :]


def cut(data: bytes, at: int, _: int, __: bytes) -> bytes:
    return data[: at % len(data)]


def drop_line(data: bytes, at: int, _: int, __: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[at % len(lines)]
    return b"".join(lines)


def swap_lines(data: bytes, at: int, by: int, _: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    lines[-1] = lines[-1].rstrip(b"\n") + b"\n"
    one, other = at % len(lines), by % len(lines)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def repeat_line(data: bytes, at: int, by: int, _: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    lines[-1] = lines[-1].rstrip(b"\n") + b"\n"
    lines.insert(by % len(lines), lines[at % len(lines)])
    return b"".join(lines)


def fields_of(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def in_columns(data: bytes, change: Callable[[list[str], int], list[str]]) -> bytes:
    """The change done to every line of at least as many fields as most lines have: headers may have more (ncu)."""
    lines = data.decode("utf-8", "replace").split("\n")
    rows = [fields_of(line) for line in lines]
    widths = [len(row) for row in rows]
    width = max(set(widths), key=widths.count)
    out = []
    for line, row in zip(lines, rows, strict=True):
        if len(row) < width or width < 2:
            out.append(line)
            continue
        stream = io.StringIO()
        csv.writer(stream, lineterminator="").writerow(change(row, width))
        out.append(stream.getvalue())
    return "\n".join(out).encode()


def drop_column(data: bytes, at: int, _: int, __: bytes) -> bytes:
    def change(row: list[str], width: int) -> list[str]:
        return [field for index, field in enumerate(row) if index != at % width]

    return in_columns(data, change)


def swap_columns(data: bytes, at: int, by: int, _: bytes) -> bytes:
    def change(row: list[str], width: int) -> list[str]:
        row = list(row)
        one, other = at % width, by % width
        row[one], row[other] = row[other], row[one]
        return row

    return in_columns(data, change)


BYTES = {"flip": flip, "delete": delete, "insert": insert, "replace": replace, "cut": cut}
LINES = {"drop_line": drop_line, "swap_lines": swap_lines, "repeat_line": repeat_line}
COLUMNS = {"drop_column": drop_column, "swap_columns": swap_columns}
ALL: dict[str, Callable[[bytes, int, int, bytes], bytes]] = {**BYTES, **LINES, **COLUMNS}


def edits(*kinds: str, most: int = 3, texts: tuple[bytes, ...] = TOKENS) -> st.SearchStrategy[list[Edit]]:
    """One or more edits of these kinds."""
    one = st.tuples(st.sampled_from(kinds), AT, AT, st.sampled_from(texts))
    return st.lists(one, min_size=1, max_size=most)


def spoil(data: bytes, changes: list[Edit]) -> bytes:
    """The file after the edits, one after another; cuts last: writing a line anew would close what they opened."""
    for kind, at, by, text in sorted(changes, key=lambda edit: edit[0] == "cut"):
        if not data.strip():
            return data
        data = ALL[kind](data, at, by, text)
    return data
