"""The rows of a family as groups that differ in nothing that a rule has read yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

Places = npt.NDArray[np.intp]
Rows = slice | Places
Mask = npt.NDArray[np.bool_]
# The values of each axis by family, of a table with all their combinations: one family after another, in each the last
# axis changing fastest.
Axes = Mapping[str, Mapping[str, Sequence[Any]]]


# What columns have that is of the whole space.
OF_THE_SPACE = ("families", "largest", "values_of")


class SomeRows:
    """A subset of the rows of ``columns_of``; a column is taken when it is first used. What is OF_THE_SPACE remains. It
    has no methods, since an axis may have any name."""

    def __init__(self, columns: Any, rows: Rows) -> None:
        vars(self).update((name, getattr(columns, name)) for name in OF_THE_SPACE)
        self._columns, self._rows = columns, rows
        self._before: dict[str, Any] = {}
        self._mask: Mask | None = None

    def __getattr__(self, name: str) -> Any:
        before = self._before.get(name)
        column = getattr(self._columns, name)[self._rows] if before is None else before[self._mask]
        vars(self)[name] = column
        return column

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"a rule may not keep {name}: it would be that of other rows for the next one")
        vars(self)[name] = value


def taken(some: SomeRows) -> set[str]:
    """The columns that were used."""
    return {name for name in vars(some) if not name.startswith("_")} - {*OF_THE_SPACE}


def forget(some: SomeRows, columns: Iterable[str]) -> None:
    """Gives up columns that were used."""
    for name in taken(some) & set(columns):
        delattr(some, name)


def fewer(some: SomeRows, mask: Mask) -> SomeRows:
    """The rows where the mask is true, of rows that are given by their positions. Columns that were used are not taken
    from the whole space again, which takes ten times as long."""
    found = SomeRows(some._columns, some._rows[mask])  # type: ignore[index]
    found._before, found._mask = {name: vars(some)[name] for name in taken(some)}, mask
    return found


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Groups of equally many rows: all combinations of the axes ``beside``, whose values share a group.

    first:  position of the first row of each group.
    beside: how far each value of the axis lies from the first, in rows.
    """

    first: Places
    beside: Mapping[str, Places] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of rows of all groups."""
        return len(self.first) * math.prod(map(len, self.beside.values()))

    def split(self, axes: Iterable[str]) -> RowGroups:
        """The same rows in smaller groups, each with one value of these axes."""
        first, beside = self.first, dict(self.beside)
        for axis in axes:
            first = (first[:, None] + beside.pop(axis)).ravel()
        return RowGroups(first, beside)

    def only(self, mask: Mask) -> RowGroups:
        """The groups where the mask is true."""
        return RowGroups(self.first[mask], self.beside)

    def rows(self) -> Places:
        """The positions of all rows, in no order."""
        return self.split(self.beside).first


def groups_by_family(family: pd.Categorical, axes: Axes) -> Iterator[tuple[str, RowGroups]]:
    """The rows of each family: one group if axes are given, else a group for each row.

    Raises ValueError if the axes have not as many combinations as there are rows.
    """
    if not axes:
        places = np.arange(len(family))
        yield from ((name, RowGroups(places[rows])) for name, rows in rows_by_family(family))
        return
    sizes = [combinations_of(values) for values in axes.values()]
    if sum(sizes) != len(family):
        raise ValueError(f"the axes have {sum(sizes)} combinations, the table has {len(family)} rows")
    begin = 0
    for (name, values), size in zip(axes.items(), sizes, strict=True):
        beside, step = {}, size
        for axis, of_axis in values.items():
            step //= len(of_axis)
            beside[axis] = step * np.arange(len(of_axis))
        yield name, RowGroups(np.array([begin]), beside)
        begin += size


def combinations_of(axes: Mapping[str, Sequence[Any]]) -> int:
    """How many combinations the axes of a family have."""
    return math.prod(map(len, axes.values()))


def rows_by_family(family: pd.Categorical) -> Iterator[tuple[str, Rows]]:
    """Each family with its rows: a slice where they follow one another, as in every space, else their positions."""
    for code, name in enumerate(family.categories):
        places = np.flatnonzero(family.codes == code)
        if len(places):
            first, last = int(places[0]), int(places[-1])
            yield name, slice(first, last + 1) if last - first + 1 == len(places) else places
