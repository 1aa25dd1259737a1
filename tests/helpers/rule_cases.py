"""How a test says what a rule keeps and cuts, and spaces that are thinner than the shipped ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import quick_yaml
from samples import AMD, ROOT, RULES, TEMPLATES, columns, config, device

from gemm_tuner.gemm.axes import AXES
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.pipeline.prepare import Space, load_space
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.space import prune
from gemm_tuner.space.row_groups import OF_THE_SPACE

BY_NAME = {rule.name: rule for rule in prune.load_rules(RULES)}
# The largest values of the space that a rule asks for.
LARGEST = {"SPLIT_K": 66, "num_stages": 8, "NUM_XCDS": 8}
FP8 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e4m3"}
BLOCK_SCALES = {**FP8, "scaling": "block"}
INT8 = {"dtype_a": "int8", "dtype_b": "int8", "dtype_c": "int32"}
FP32 = {"dtype_a": "fp32", "dtype_b": "fp32", "dtype_c": "fp32"}
TF32 = {**FP32, "precision": "tf32"}
NT = {"layout_b": Layout.COL}
TN = {"layout_a": Layout.COL}


class On(NamedTuple):
    """Where a rule is asked: a size with the keys of a GemmProblem, on an architecture."""

    size: tuple[int, int, int]
    arch: str = "sm_90"
    keys: Mapping[str, Any] = MappingProxyType({})

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(*self.size, **self.keys)


class Case(NamedTuple):
    """On ``on``: changes with which a configuration is kept, and with which it is cut."""

    rule: str
    on: On
    kept: dict[str, Any]
    cut: dict[str, Any]


class PlaceCase(NamedTuple):
    """Changes with which a configuration is kept on the one place and cut on the other."""

    rule: str
    changes: dict[str, Any]
    kept_on: On
    cut_on: On


def rules_of(file: str) -> set[str]:
    """The names of the rules that a file holds."""
    return {rule.name for rule in BY_NAME.values() if Path(rule.keep.__code__.co_filename).name == file}  # type: ignore[attr-defined]


def keeps(name: str, on: On, changes: dict[str, Any]) -> bool:
    """What a rule, where it holds, says of one configuration; by its backend and families as a run does."""
    rule = BY_NAME[name]
    base = AMD if on.arch.startswith("gfx") else {}
    one = config(**{**base, **changes})
    assert not rule.families or one.family in rule.families, f"{name} is never asked about {one.family}"
    target = device(on.arch)
    assert rule.backend in ("", target.target.backend), f"{name} is never asked on {on.arch}"
    return len(prune.apply(columns(one, largest=LARGEST, arch=on.arch), on.problem, target, (rule,)).kept) == 1


@cache
def thin_space_text(arch: str) -> str:
    """The shipped space file with all blocks, and of the other axes the first and the last value."""
    return changed_space_text(
        arch, lambda axis, values: values if axis.startswith("BLOCK_SIZE") else sorted({values[0], values[-1]})
    )


def changed_space_text(arch: str, change: Callable[[str, list[int]], list[int]]) -> str:
    """The shipped space file with other values: change(axis, values)."""
    document = quick_yaml.load((RULES / f"space_{arch}.yaml").read_text())
    for axes in document["families"].values():
        for axis, values in axes.items():
            axes[axis] = change(axis, values)
    return quick_yaml.dump(document, sort_keys=False)


def space_of(text: str, arch: str, *, heuristics: bool = True) -> Space:
    """The space of a file with this text, with the shipped rules."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "space.yaml"
        path.write_text(text)
        asked = RunOptions((), TEMPLATES, RULES, ROOT, heuristics=heuristics, space_file=path)
        return load_space(asked, device(arch))


@cache
def thin_space(arch: str, *, heuristics: bool = True) -> Space:
    """A tenth or so of the space of an architecture, with the shipped rules."""
    return space_of(thin_space_text(arch), arch, heuristics=heuristics)


def some_rows(all_columns: Any, rows: Any) -> Any:
    """Some configurations of a space, as columns."""
    some = {axis: getattr(all_columns, axis)[rows] for axis in ("family", *AXES)}
    return SimpleNamespace(**some, **{name: getattr(all_columns, name) for name in OF_THE_SPACE})


PLAIN = {
    **dict.fromkeys(("GROUP_SIZE_M", "EPILOGUE_SUBTILE", "PROGRAMS_PER_SM", "kpack"), 1),
    **dict.fromkeys(("WARP_SPECIALIZE", "STREAM_B"), 0), "matrix_instr_nonkdim": 16, "num_stages": 4,
}  # fmt: skip


@cache
def plain_part(arch: str) -> Any:
    """A part of the shipped space. What rules keep of it they keep of the whole: an answer is of one configuration, and
    of what is OF_THE_SPACE, which a thin one has too."""
    whole = thin_space(arch).columns

    def plain(axis: str, values: list[int]) -> list[int]:
        return [value for value in values if value <= PLAIN.get(axis, value)] or values[:1]

    c = space_of(changed_space_text(arch, plain), arch).columns
    part = some_rows(c, np.flatnonzero((c.GROUP_SIZE_M == 1) & (c.EPILOGUE_SUBTILE == 1) & (c.family != "gemv")))
    vars(part).update((name, getattr(whole, name)) for name in OF_THE_SPACE)
    return part
