"""Reads the CSV files of all profilers: rows by column name, or an error that names the line.

A wrong duration is worse than none, so everything ambiguous is refused.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gemm_tuner.profilers.base import SEE_LOG, Dispatch, TraceError, no_kernels, unreadable
from gemm_tuner.system.documents import show

MISSING = frozenset(("", "none", "null", "n/a"))
NAME_COLUMNS = ("kernelname", "name")
TITLE = re.compile(r"(?P<name>.*?)(?: \((?P<unit>[^()]*)\))?")
WHOLE_NUMBER = re.compile(r"[0-9]{1,19}")
NOT_IN_NAMES = re.compile(r"[ _-]")
LARGEST_INT64 = 2**63 - 1
MAX_LINE_CHARS = 2**20  # C++ kernel names can have thousands of characters
NOTE = "=="  # ncu mixes ==PROF==, ==WARNING== and ==ERROR== lines into its output, even in a log file

# nsys writes ns, us, ms, sec; ncu nsecond, usecond, ... until about 2022 and ns, us, ms, s later.
NANOSECONDS = {
    **dict.fromkeys(("ns", "nsec", "nsecond"), 1),
    **dict.fromkeys(("us", "usec", "usecond"), 1_000),
    **dict.fromkeys(("ms", "msec", "msecond"), 1_000_000),
    **dict.fromkeys(("s", "sec", "second"), 1_000_000_000),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """A kind of table, recognized by its required columns.

    titles:    the required columns as the tool prints them, without units.
    columns:   the same, normalized.
    refusal:   why this kind of table cannot be used; "" for a usable one.
    short_row: what a row with too few fields means in this table, for the error message.
    ragged:    rows may have fewer fields than the header (ncu's details page omits rule columns).
    """

    titles: tuple[str, ...]
    columns: frozenset[str]
    refusal: str = ""
    short_row: str = ""
    ragged: bool = False


def layout(*titles: str, refusal: str = "", short_row: str = "", ragged: bool = False) -> Layout:
    return Layout(titles, frozenset(normalise(title)[0] for title in titles), refusal, short_row, ragged)


@dataclass(frozen=True, slots=True)
class Header:
    """A header line: the position of each normalized column, and titles and units as printed."""

    path: Path
    line: int
    layout: Layout
    columns: dict[str, int]
    titles: tuple[str, ...]
    units: tuple[str, ...]

    def unit(self, column: str) -> str:
        return self.units[self.columns[column]]


@dataclass(frozen=True, slots=True)
class Row:
    """A data row. whole: False for a last line without a newline, whose last field may be truncated."""

    header: Header
    line: int
    fields: list[str] = field(repr=False)
    whole: bool

    def error(self, what: str, *, accepted: str = "", hint: str = SEE_LOG) -> TraceError:
        return unreadable(self.header.path, self.line, what, accepted=accepted, hint=hint)

    def title(self, column: str) -> str:
        return self.header.titles[self.header.columns[column]]

    def text(self, column: str) -> str:
        """The field without surrounding blanks; '' if the tool wrote a text that means "no value"."""
        index = self.header.columns[column]
        if index >= len(self.fields):
            raise self.error(f"the row ends before its column {show(self.title(column))}: the file may be cut short")
        if not self.whole and index == len(self.fields) - 1:
            raise self.error(f"the file ends inside the column {show(self.title(column))}", accepted="a complete line")
        value = self.fields[index].strip()
        return "" if value.casefold() in MISSING else value

    def kernel_name(self, column: str) -> str:
        """The kernel name in that column; refuses an empty field and a plain number."""
        name = self.text(column)
        if not name:
            raise self.error("the kernel has no name")
        if WHOLE_NUMBER.fullmatch(name):
            raise self.error(f"the column {show(self.title(column))} holds {show(name)}", accepted="a kernel's name")
        return name

    def whole_number(self, column: str) -> int:
        value = self.text(column)
        if not WHOLE_NUMBER.fullmatch(value) or int(value) > LARGEST_INT64:
            raise self.error(
                f"the column {show(self.title(column))} holds {show(value)}",
                accepted="a whole number, 0 or more",
                hint=f"the row's fields may be shifted; {SEE_LOG}",
            )
        return int(value)

    def process(self, column: str) -> str:
        """The process in that column; "" if the table has no such column."""
        return str(self.whole_number(column)) if column in self.header.columns else ""

    def elapsed_ns(self, start: str, end: str) -> int:
        """The difference of two columns of nanoseconds; refuses an end before its start."""
        elapsed = self.whole_number(end) - self.whole_number(start)
        if elapsed < 0:
            raise self.error(
                f"{show(self.title(end))} comes {-elapsed} ns before {show(self.title(start))}: negative duration"
            )
        return elapsed


def normalise(title: str) -> tuple[str, str]:
    """A column's name and unit: 'Duration (ns)' is ('duration', 'ns'), 'gpu-id' is ('gpuid', '')."""
    found = TITLE.fullmatch(title.strip())
    name, unit = (found["name"], found["unit"]) if found else (title, None)
    return NOT_IN_NAMES.sub("", name).casefold(), unit or ""


def read_rows(path: Path, layouts: Sequence[Layout]) -> Iterator[Row]:
    """The data rows of every wanted table in a file, which may also hold banners and other tables.

    A line is a header if it contains the columns of one of ``layouts``; the first such layout applies. After a blank
    line, a line without any number starts another table, which is skipped. Raises TraceError for a row of another
    width, for a file without a usable header, and for an empty file.
    """
    header: Header | None = None
    refused: Header | None = None
    notes: list[str] = []
    empty, foreign, after_blank = True, True, False
    for line, text, whole in numbered_lines(path):
        if not text.strip():
            after_blank = True
            continue
        empty = False
        if text.startswith(NOTE):
            notes.append(text)
            continue
        fields = split_fields(text)
        found = match_header(path, line, fields, layouts)
        if found:
            foreign = bool(found.layout.refusal)
            header, refused = (header, refused or found) if foreign else (found, refused)
        elif after_blank and fields is not None and not has_number(fields):
            foreign = True
        elif header and not foreign:
            yield data_row(header, line, text, whole, fields)
        after_blank = False
    if empty:
        raise no_kernels(path)
    if header is None:
        raise no_header(path, layouts, refused, notes)


def refuse_repeated(rows: Iterable[tuple[Row, Dispatch]]) -> Iterator[Dispatch]:
    """The dispatches of a tool that gives start times. Refuses two with the same start: one process launches on one
    queue, where kernels never start at the same time, so the second is a repeated row, which could hide a lost one."""
    seen: dict[tuple[str, int, str], int] = {}
    for row, dispatch in rows:
        key = (dispatch.kernel_name, dispatch.start_ns, dispatch.process)
        first = seen.setdefault(key, row.line)
        if first != row.line:
            raise row.error(f"the kernel and its start are those of line {first}", accepted="each launch once")
        yield dispatch


def numbered_lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yields (line number from 1, text without the line end, whether the line has an end)."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        for line, raw in enumerate(iter(lambda: file.readline(MAX_LINE_CHARS), ""), start=1):
            if len(raw) == MAX_LINE_CHARS:
                raise unreadable(path, line, "the line is too long", accepted=f"under {MAX_LINE_CHARS} characters")
            text = raw.rstrip("\r\n")
            yield line, text, text != raw or text.endswith('"')


def split_fields(text: str) -> list[str] | None:
    """The fields of one line; None if its quoting is invalid. Kernel names contain no line breaks."""
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error:
        return None


def has_number(fields: list[str]) -> bool:
    return any(value.isdigit() for value in fields)


def match_header(path: Path, line: int, fields: list[str] | None, layouts: Sequence[Layout]) -> Header | None:
    if fields is None or has_number(fields):
        return None
    names_and_units = [normalise(title) for title in fields]
    columns: dict[str, int] = {}
    for index, (name, _) in enumerate(names_and_units):
        columns.setdefault(name, index)
    for candidate in layouts:
        if candidate.columns <= columns.keys():
            units = tuple(unit for _, unit in names_and_units)
            return Header(path, line, candidate, columns, tuple(title.strip() for title in fields), units)
    return None


def data_row(header: Header, line: int, text: str, whole: bool, fields: list[str] | None) -> Row:
    """A row of the header's width; otherwise raises TraceError. A name with unescaped quotes is repaired."""
    width = len(header.titles)
    if fields is None or any(value.strip() for value in fields[width:]):
        fields = rejoin_name(text, header)
    if fields is None:
        raise unreadable(
            header.path,
            line,
            "the fields of this row do not line up with the header's",
            accepted=f"{width} fields, as in line {header.line}",
            hint=f"the row is shifted, cut short, or badly quoted; {SEE_LOG}",
        )
    if len(fields) < width and not header.layout.ragged:
        raise unreadable(
            header.path,
            line,
            f"the row has too few fields, {len(fields)}",
            accepted=f"{width} fields, as in line {header.line}",
            hint=header.layout.short_row or f"the file may be cut short; {SEE_LOG}",
        )
    return Row(header, line, fields, whole)


def rejoin_name(text: str, header: Header) -> list[str] | None:
    """The fields of a row whose kernel name contains unescaped quotes; None if something else is wrong.

    rocprofv3 and nsys do not escape quotes in names. Only the name can contain a comma, so the fields before it are
    counted from the left and those after it from the right.
    """
    index = next((header.columns[name] for name in NAME_COLUMNS if name in header.columns), None)
    if index is None:
        return None
    *before, rest = text.split(",", index)
    after_count = len(header.titles) - index - 1
    name, *after = rest.rsplit(",", after_count) if after_count else [rest]
    if len(before) != index or len(after) != after_count:
        return None
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return None
    others = [split_fields(piece) for piece in (*before, *after)]
    if any(other is None or len(other) > 1 or '"' in "".join(other) for other in others):
        return None
    values = ["".join(other or ()) for other in others]
    return [*values[:index], name[1:-1], *values[index:]]


def no_header(path: Path, layouts: Sequence[Layout], refused: Header | None, notes: list[str]) -> TraceError:
    """The error for a non-empty file without a usable table; messages of ncu in the file come first."""
    if any("No kernels were profiled" in note for note in notes):
        return no_kernels(path)
    errors = [note for note in notes if note.startswith("==ERROR==")]
    if errors:
        return unreadable(path, None, f"the profiler reported {errors[0][:300]}")
    if refused:
        return unreadable(path, refused.line, refused.layout.refusal, hint="")
    wanted = " or ".join(", ".join(one.titles) for one in layouts if not one.refusal)
    return unreadable(
        path,
        1,
        "no line of the file is a header with the columns needed",
        accepted=wanted,
        hint=f"the header line is missing, or another tool wrote the file; {SEE_LOG}",
    )
