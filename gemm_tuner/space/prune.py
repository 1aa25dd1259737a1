"""Applies rules to the space, and records which rule rejected each configuration."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.core.workload import FIRST_KIND
from gemm_tuner.space.row_groups import (
    Axes,
    Mask,
    Places,
    RowGroups,
    SomeRows,
    combinations_of,
    fewer,
    forget,
    groups_by_family,
    taken,
)
from gemm_tuner.space.rule import Kind, Rule
from gemm_tuner.space.rule_answers import evaluate

if TYPE_CHECKING:
    import pandas as pd

RULE_FILES = ("validity.py", "heuristics.py", "families.py")


@dataclass(frozen=True, slots=True)
class FunnelRow:
    """How many configurations one rule rejected after the preceding rules, and how many remain."""

    rule: str
    kind: Kind
    why: str
    cut: int
    remain: int


@dataclass(frozen=True)
class Pruned:
    """kept: positions of the rows that all rules keep. total: number of rows. cuts: by rule, the rows that it is the
    first to reject."""

    kept: Places
    funnel: tuple[FunnelRow, ...] = ()
    total: int = 0
    cuts: Mapping[str, Sequence[RowGroups]] = field(default_factory=dict)

    @cached_property
    def rejected_by(self) -> npt.NDArray[np.object_]:
        """For each row the first rule that rejects it, or ""."""
        found = np.full(self.total, "", dtype=object)
        for rule, cuts in self.cuts.items():
            for groups in cuts:
                found[groups.rows()] = rule
        return found


def load_rules(rules_dir: Path, *, heuristics: bool = True) -> tuple[Rule, ...]:
    """The rules of a folder, in their order in the files, validity rules first: of validity.py, then of each file
    validity_*.py there is, and so on. This executes the folder's Python files.

    Raises UserError if a file is missing or contains no rule.
    """
    found: list[Rule] = []
    files = [rules_dir / name for name in (RULE_FILES if heuristics else RULE_FILES[:1])]
    for path in (path for file in files for path in (file, *sorted(rules_dir.glob(f"{file.stem}_*.py")))):
        spec = importlib.util.spec_from_file_location(f"gemm_tuner_rules_{path.stem}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise UserError(
                "is missing",
                where=str(path),
                accepted=f"a folder with {' and '.join(RULE_FILES)}",
                hint="check --rules",
            )
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise UserError(f"does not load: {type(error).__name__}: {error}", where=str(path)) from error
        found += [value for value in vars(module).values() if isinstance(value, Rule)]
    if not found:
        raise UserError("holds no rules", where=str(rules_dir), accepted="functions under gemm_tuner.space.rule.rule")
    twice = [rule.name for index, rule in enumerate(found) if rule.name in {r.name for r in found[:index]}]
    if twice:
        raise UserError(f"two rules are called {twice[0]}", where=str(rules_dir))
    return tuple(found)


def columns_of(configs: pd.DataFrame, axes: Axes | None = None) -> Any:
    """The columns of the space as arrays of shape (configurations,), the input of rules and of the model.

    family:    a Categorical; comparing it with a name is about a hundred times faster than with an array of strings.
    largest:   the largest value of each axis in the whole space. families: the names of all families in it.
    values_of: gives the values of an axis that a family has in the whole space, in order, of which it has all
               combinations: those of ``axes``, else those in ``configs``. None for a family that it has not.

    axes: whose combinations the rows are, one family after another.
    """

    columns = {str(axis): configs[axis].to_numpy() for axis in configs.columns if axis != "family"}
    family = _family_of(configs, axes or {})

    @cache
    def values_there(name: str, axis: str) -> tuple[Any, ...]:
        return tuple(np.unique(columns[axis][family == name]).tolist())

    values_of = values_there if axes is None else values_in(axes)
    largest = _largest_of(columns, axes or {}) if len(configs) else {}
    whole = {"families": frozenset(family.categories), "largest": largest, "values_of": values_of}
    return SimpleNamespace(family=family, **whole, **columns)


def _family_of(configs: pd.DataFrame, axes: Axes) -> pd.Categorical:
    """The column of families; without reading it, which takes long of millions of rows, if axes are given."""
    import pandas as pd

    if not axes:
        return pd.Categorical(configs["family"])
    names = sorted(axes)
    codes: Any = np.repeat([names.index(name) for name in axes], [combinations_of(of) for of in axes.values()])
    return pd.Categorical.from_codes(codes, pd.Index(names, dtype=object))


def _largest_of(columns: Mapping[str, npt.NDArray[Any]], axes: Axes) -> dict[str, int]:
    """The largest value of each column of whole numbers; without reading them if axes are given."""
    counted = {axis: column for axis, column in columns.items() if np.issubdtype(column.dtype, np.integer)}
    if not axes:
        return {axis: int(column.max()) for axis, column in counted.items()}
    values_of = values_in(axes)
    return {axis: max(values_of(family, axis)[-1] for family in axes) for axis in counted}


def values_in(axes: Axes) -> Callable[[str, str], tuple[Any, ...]]:
    """Gives the values of an axis that a family has, in order: 0 where it does not name the axis, none of a family that
    is not there."""
    return lambda family, axis: tuple(sorted(axes[family].get(axis, (0,)))) if family in axes else ()


def in_order(rules: Iterable[Rule]) -> list[Rule]:
    """The rules as they are asked: those on whole families first."""
    return sorted(rules, key=lambda rule: not rule.whole_families)


def apply(columns: Any, problem: Problem, device: Device, rules: tuple[Rule, ...], axes: Axes | None = None) -> Pruned:
    """Applies all rules ``in_order``, and finds for each configuration the first rule that rejects it.

    The rows of each family are taken apart from the others, so that a rule looks at none of a family that is not its.
    axes: if the rows are all combinations of these. A rule is then asked about one row for all that differ only in axes
    that no rule up to it reads, which are few of a space of which early rules reject most.
    """
    used = [rule for rule in in_order(rules) if rule.backend in ("", device.target.backend)]
    cuts: dict[str, list[RowGroups]] = {rule.name: [] for rule in used}
    kept: list[Places] = [np.arange(0)]
    for family, groups in groups_by_family(columns.family, axes or {}):
        of_family = [rule for rule in used if not rule.families or family in rule.families]
        left, rejected = sifted(columns, groups, of_family, problem, device)
        kept.append(left.rows())
        for rule, of_rule in rejected:
            cuts[rule.name].append(of_rule)
    return Pruned(np.sort(np.concatenate(kept)), _funnel(used, cuts, len(columns.family)), len(columns.family), cuts)


def _funnel(rules: Iterable[Rule], cuts: Mapping[str, Sequence[RowGroups]], left: int) -> tuple[FunnelRow, ...]:
    funnel = []
    for rule in rules:
        cut = sum(groups.total for groups in cuts[rule.name])
        left -= cut
        funnel.append(FunnelRow(rule.name, rule.kind, rule.why, cut, left))
    return tuple(funnel)


def sifted(
    columns: Any, groups: RowGroups, rules: Iterable[Rule], problem: Problem, device: Device
) -> tuple[RowGroups, list[tuple[Rule, RowGroups]]]:
    """The groups that all rules keep, and what each rule is the first to reject.

    Rejected groups are removed from the columns only once they are more than a quarter of them, because copying columns
    costs more than evaluating a rule on some rows that are already rejected.
    """
    some, alive = SomeRows(columns, groups.first), _all(groups)
    found: list[tuple[Rule, RowGroups]] = []
    for rule in rules:
        answer, asked, of_asked, alive_of_asked = evaluate(rule, some, problem, device), groups, some, alive
        # What was read is of the first value of these axes. In their order, so that rows keep theirs.
        while read := axes_read(asked, of_asked):
            asked = asked.only(alive_of_asked).split(read)
            of_asked, alive_of_asked = SomeRows(columns, asked.first), _all(asked)
            answer = evaluate(rule, of_asked, problem, device)
        rejected = alive_of_asked & ~answer
        if not rejected.any():  # groups stay as large as they are
            forget(some, groups.beside)
            continue
        groups, some, alive = asked, of_asked, alive_of_asked & answer
        found.append((rule, groups.only(rejected)))
        left = np.count_nonzero(alive)
        if not left:
            break
        if 4 * left < 3 * len(alive):
            groups, some = groups.only(alive), fewer(some, alive)
            alive = _all(groups)
    return groups.only(alive), found


def axes_read(groups: RowGroups, some: SomeRows) -> list[str]:
    """The axes whose values share a group, of which a rule has read the first."""
    used = taken(some)
    return [axis for axis in groups.beside if axis in used]


def _all(groups: RowGroups) -> Mask:
    return np.ones(len(groups.first), dtype=bool)


def nothing_left(pruned: Pruned, problem: Problem, *, some_are_valid: bool) -> UserError:
    """The error of a size of which nothing is left, which names the rule that rejected the last one. some_are_valid:
    heuristics alone are in the way of some."""
    last = [row for row in pruned.funnel if row.cut][-1]
    other = "give a smaller size, or other axes by --space"
    if problem.kind != FIRST_KIND:
        other = "give another size, or change the rule or the parameters"
    hints = ["add --no_heuristics"] if some_are_valid else []
    hints += [other] if last.kind != Kind.HEURISTIC else []
    return UserError(
        f"no configuration is left; the last {last.cut} were cut by {last.rule}: {last.why.removesuffix('.')}",
        where=problem.key,
        hint=", or ".join(hints),
    )
