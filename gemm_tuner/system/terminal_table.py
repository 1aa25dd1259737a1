"""Prints tables and lines that fit the terminal; output to a pipe is never cut or wrapped.

Text is printed literally: rich's markup is off, and control characters are replaced by blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

GAPS = (2, 1)  # between columns; the smaller one where the larger one does not fit


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    title: may break at blanks and at line breaks; ``name`` is the title without line breaks.
    rank:  0 for a column that is always shown; a narrow terminal drops the columns of highest rank first.
    wraps: cells may take several lines, broken between words.
    """

    title: str
    is_number: bool = False
    rank: int = 0
    wraps: bool = False

    @property
    def name(self) -> str:
        return self.title.replace("\n", "")


@dataclass(frozen=True, slots=True)
class _Shown:
    """A column with its cells. full: its width without wrapping. least: its smallest width with wrapping."""

    column: Column
    cells: tuple[Text, ...]
    full: int
    least: int


def print_table(
    console: Console, title: str, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]
) -> tuple[str, ...]:
    """Prints a table with a title above it. Columns without any text are not shown.

    On a terminal, columns of rank above 0 are dropped until each row fits on one line; if that is not enough, columns
    with ``wraps`` wrap. Returns the titles of the dropped columns.
    """
    held = [_shown(column, [row[at] for row in rows]) for at, column in enumerate(columns)]
    held = [one for one in held if any(cell.plain for cell in one.cells)]
    if title:
        console.print(Text(printable(title), style="bold"))
    if not console.is_terminal:
        for line in _whole_lines(held):
            console.print(line, soft_wrap=True)
        return ()
    chosen, widths, gap = _fitting(held, console.width)
    console.print(_table(chosen, widths, gap))
    return tuple(one.column.name for one in held if one not in chosen)


def print_line(console: Console, text: str | Text, style: str = "") -> None:
    """Prints one line of text without markup. On a terminal it wraps between words; a word that is wider than the
    terminal is not broken, so that a path can be copied. In a pipe it stays one line."""
    shown = text if isinstance(text, Text) else Text(text, style=style)
    for line in shown.divide(_breaks(shown.plain, console.width)) if console.is_terminal else [shown]:
        line.rstrip()
        console.print(line, soft_wrap=True)


def _breaks(text: str, width: int) -> list[int]:
    """Offsets at which ``text`` wraps to ``width`` columns. rich would also break words that are longer than a line."""
    breaks, used = [], 0
    for word in re.finditer(r"\s*\S+\s*", text):
        if used and used + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            used = 0
        used += cell_len(word[0])
    return breaks


def printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)


def _shown(column: Column, cells: Sequence[str | Text]) -> _Shown:
    texts = tuple(Text(printable(str(cell)), style=cell.style if isinstance(cell, Text) else "") for cell in cells)
    full = max([cell_len(text.plain) for text in texts] + [_longest_word(column.title)])
    least = max(_longest_word(text.plain) for text in (*texts, Text(column.title))) if column.wraps else full
    return _Shown(column, texts, full, least)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _whole_lines(held: Sequence[_Shown]) -> Iterator[Text]:
    """The heading and the rows, each on one line of any length."""
    widths = [max(one.full, cell_len(one.column.name)) for one in held]
    headings = [tuple(Text(one.column.name) for one in held)] if any(one.column.title for one in held) else []
    for cells in (*headings, *zip(*(one.cells for one in held), strict=True)):
        line = Text()
        for one, width, cell in zip(held, widths, cells, strict=True):
            blanks = " " * (width - cell_len(cell.plain))
            line.append_text(
                Text.assemble(*((blanks, cell) if one.column.is_number else (cell, blanks)), " " * GAPS[0])
            )
        line.rstrip()
        yield line


def _fitting(held: Sequence[_Shown], width: int) -> tuple[list[_Shown], list[int], int]:
    """The columns that fit, their widths, and the gap between columns."""
    ranks = sorted({one.column.rank for one in held}, reverse=True)
    choices = [[one for one in held if one.column.rank <= rank] for rank in ranks]
    for chosen in choices:
        for gap in GAPS:
            if sum(one.full for one in chosen) + gap * (len(chosen) - 1) <= width:
                return chosen, [one.full for one in chosen], gap
    gap = GAPS[-1]
    for chosen in choices:
        room = width - gap * (len(chosen) - 1)
        # A row on two lines is readable; more columns are not worth a third line.
        if sum(max(one.least, -(-one.full // 2)) if one.column.wraps else one.full for one in chosen) <= room:
            break
    return chosen, _wrapped(chosen, room), gap


def _wrapped(chosen: Sequence[_Shown], room: int) -> list[int]:
    """Widths that add up to ``room``: columns that may wrap shrink towards their least width, the widest first."""
    widths = [one.full for one in chosen]
    while sum(widths) > room:
        widest = max(range(len(chosen)), key=lambda at: (widths[at] > chosen[at].least, widths[at]))
        if widths[widest] <= 1:
            break
        widths[widest] -= 1
    return widths


def _table(chosen: Sequence[_Shown], widths: Sequence[int], gap: int) -> Table:
    has_header = any(one.column.title for one in chosen)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=has_header)
    for one, width in zip(chosen, widths, strict=True):
        justify: Literal["right", "left"] = "right" if one.column.is_number else "left"
        table.add_column(one.column.title, justify=justify, width=width, overflow="fold")
    for cells in zip(*(one.cells for one in chosen), strict=True):
        table.add_row(*(_parted(cell, width) for cell, width in zip(cells, widths, strict=True)))
    return table


def _parted(text: Text, width: int) -> Text:
    """Text whose words that are wider than ``width`` are broken at underscores, if possible behind a field of a
    configuration's name, such as num_warps4. rich would break them anywhere."""
    breaks = list[int]()
    for word in re.finditer(r"\S+", text.plain):
        start = word.start()
        while word.end() - start > width:
            ends = [found.end() for found in re.finditer("_", text.plain[start : start + width])]
            fields = [end for end in ends if text.plain[start + end - 2].isdigit()]
            start += (fields or ends or [width])[-1]
            breaks.append(start)
    return Text("\n").join(text.divide(breaks)) if breaks else text
