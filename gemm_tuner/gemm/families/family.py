"""The facts of a kernel family that Python must know, and the look-up by name."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gemm_tuner.gemm import families

# Packages outside this one name modules with a FAMILY in this group of entry points: ``gemm_rows = package.module``.
ENTRY_POINTS = "gemm_tuner.gemm_families"


@dataclass(frozen=True, slots=True)
class Family:
    """The defaults are those of a kernel that computes one tile of C a program with the matrix unit, and loads through
    pointers.

    by_descriptors:     loads tiles through TMA descriptors where the architecture has them.
    packs:              copies operands whose rows descriptors do not take, and so takes all rows.
    is_tiled:           the general heuristics about tiles hold (rules/heuristics.py).
    takes_any_m:        M is no specialised argument where A is row-major: its template has do_not_specialize for it.
    by_small_side:      the smaller of M and N is kept whole: another kernel is compiled where it is M than where it is
                        N, and checks keep it.
    pads_partial_sums:  partial sums are whole tiles, not M x N.
    on_cores:           multiplies on the ordinary cores, at the rate of fp32, not in the matrix unit.
    adds_in_one_launch: slices of K are added in the kernel itself, not by a second one.
    fills_last_wave:    the work of the last wave is shared out over all SMs.
    work_items:         how many pieces of work a persistent grid shares out, from tiles and blocks of K.
    """

    name: str
    by_descriptors: bool = False
    packs: bool = False
    is_tiled: bool = True
    takes_any_m: bool = False
    by_small_side: bool = False
    pads_partial_sums: bool = False
    on_cores: bool = False
    adds_in_one_launch: bool = False
    fills_last_wave: bool = False
    work_items: Callable[[int, int], int] = lambda tiles, blocks_of_k: tiles


@lru_cache(maxsize=1)
def known_families() -> dict[str, Family]:
    """The families of this package and of entry points, by name."""
    found = {}
    modules = [f"{families.__name__}.{module.name}" for module in pkgutil.iter_modules(families.__path__)]
    entries = importlib.metadata.entry_points(group=ENTRY_POINTS)
    for module in (*map(importlib.import_module, modules), *(entry.load() for entry in entries)):
        family = getattr(module, "FAMILY", None)
        if isinstance(family, Family):
            found[family.name] = family
    return found


def family_of(name: str) -> Family:
    """A family by its name; one without a module is a plain tile."""
    return known_families().get(name) or Family(name, is_tiled=False)


def names_of(has: Callable[[Family], bool]) -> tuple[str, ...]:
    """The known families that have a property, sorted."""
    return tuple(sorted(name for name, family in known_families().items() if has(family)))


def rows_of(family_column: Any, has: Callable[[Family], bool]) -> npt.NDArray[np.bool_]:
    """Which rows of a column of names are families that have a property."""
    column = np.asarray(family_column)
    found: npt.NDArray[np.bool_] = np.isin(column, [name for name in set(column.tolist()) if has(family_of(name))])
    return found
