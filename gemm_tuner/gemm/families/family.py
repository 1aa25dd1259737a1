"""The properties of a kernel family that Python code depends on, and the lookup by name."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm import families
from gemm_tuner.gemm.config import KERNEL_FAMILIES
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.values import did_you_mean

if TYPE_CHECKING:  # the command line starts without numpy
    import numpy as np
    import numpy.typing as npt

# Other packages register modules with a FAMILY in this entry point group: ``gemm_rows = package.module``.
ENTRY_POINTS = "gemm_tuner.gemm_families"


@dataclass(frozen=True, slots=True)
class Rates:
    """Constants of the analytic model that differ by family; docs/model.md says how they were fitted.

    reached:        share of the data sheet's matrix rate.
    full_intensity: BM BN / (BM + BN) above which a tile keeps the matrix unit busy; the default is that of 128 x 128.
    power:          a smaller tile reaches (its intensity / full_intensity) ** power of the rate.
    l2_reuse:       operands reach the SMs at this multiple of ``Device.l2_gbps``, because programs that run in step
                    load the same tiles.
    """

    reached: float = 0.8
    full_intensity: float = 64.0
    power: float = 1.0
    l2_reuse: float = 3.6


@dataclass(frozen=True, slots=True)
class Family:
    """Properties of a kernel family. The defaults describe a kernel in which each program computes one tile of C with
    the matrix unit and loads through pointers.

    by_descriptors:     loads tiles through TMA descriptors where the architecture has them.
    packs:              first copies operands whose rows are not aligned for descriptors, so it accepts any row length.
    in_place:           packs, but not the first operand of its kernel: A, or B where operands are swapped.
    is_tiled:           the general heuristics about tiles apply (rules/heuristics.py).
    takes_any_m:        for a row-major A, M is not a specialized argument: the template has do_not_specialize for it.
    by_small_side:      the smaller of M and N is in one tile. The kernel for a small M differs from that for a small N,
                        and checks keep that side's size.
    pads_partial_sums:  partial sums are stored as whole tiles, not as M x N.
    on_cores:           multiplies with ordinary instructions at the fp32 rate, not with the matrix unit.
    adds_in_one_launch: slices of K are added in the same kernel, not in a second one.
    fills_last_wave:    the work of the last wave is distributed over all SMs.
    work_items:         number of work items of a persistent grid, from the numbers of tiles and of blocks of K.
    language:           of its kernels: names the ``core.language.Language``.
    takes_whole_sm:     a program takes the shared memory of its SM, whatever its tile.
    equal_slices_are_views: a kernel serves all numbers of slices of K that are equal and each start at whole 16 bytes;
                        any others need a kernel of their own.
    rates:              for the analytic model.
    """

    name: str
    by_descriptors: bool = False
    packs: bool = False
    in_place: bool = False
    is_tiled: bool = True
    takes_any_m: bool = False
    by_small_side: bool = False
    pads_partial_sums: bool = False
    on_cores: bool = False
    adds_in_one_launch: bool = False
    fills_last_wave: bool = False
    work_items: Callable[[int, int], int] = lambda tiles, blocks_of_k: tiles
    language: str = "triton"
    equal_slices_are_views: bool = False
    takes_whole_sm: bool = False
    rates: Rates = Rates()


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
    """A family by its name; a family without a module has the default properties."""
    return known_families().get(name) or Family(name, is_tiled=False)


def require_known(name: str, templates_dir: Path, where: str) -> None:
    """Raises UserError for a family that neither this package, an entry point nor a folder of templates has.

    where: the entry that names it.
    """
    known = known_families()
    if name in (*known, *KERNEL_FAMILIES.values()) or (templates_dir / f"{name}.py.j2").is_file():
        return
    raise UserError(
        f"family {show(name)} is not known",
        where=where,
        accepted=f"{', '.join(sorted(known))}, or one with a template in {printable(templates_dir)}",
        hint=did_you_mean(name, known),
    )


def names_of(has: Callable[[Family], bool]) -> tuple[str, ...]:
    """The names of the known families for which ``has`` is true, sorted."""
    return tuple(sorted(name for name, family in known_families().items() if has(family)))


def rates_of(family_column: Any, name: str) -> npt.NDArray[np.float64]:
    """For each row of a column of family names, a field of that family's ``Rates``."""
    import numpy as np

    names, rows = np.unique(np.asarray(family_column), return_inverse=True)
    found: npt.NDArray[np.float64] = np.array([getattr(family_of(str(one)).rates, name) for one in names])[rows]
    return found


def rows_of(family_column: Any, has: Callable[[Family], bool]) -> npt.NDArray[np.bool_]:
    """For each row of a column of family names, whether ``has`` is true for that family."""
    import numpy as np

    found: npt.NDArray[np.bool_]
    codes = getattr(family_column, "codes", None)
    if codes is None:
        column = np.asarray(family_column)
        found = np.isin(column, [name for name in set(column.tolist()) if has(family_of(name))])
        return found
    # Of a Categorical: its names are not made anew for each row.
    names = family_column.categories.tolist()
    there = np.bincount(codes, minlength=len(names)) > 0
    of_name = [bool(present and has(family_of(name))) for name, present in zip(names, there, strict=True)]
    found = np.array(of_name, dtype=bool)[codes]
    return found
