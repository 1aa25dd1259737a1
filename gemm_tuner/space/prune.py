"""Applies rules to the space, and records which rule rejected each configuration."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.core.workload import FIRST_KIND
from gemm_tuner.space.rule import Kind, Rule
from gemm_tuner.space.rule_answers import Answer, RuleAnswers

Rows = slice | npt.NDArray[np.intp]

RULE_FILES = ("validity.py", "heuristics.py", "families.py")


@dataclass(frozen=True, slots=True)
class FunnelRow:
    """How many configurations one rule rejected after the preceding rules, and how many remain."""

    rule: str
    kind: Kind
    why: str
    cut: int
    remain: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """kept: positions of the rows that all rules keep. rejected_by: for each row the first rule that rejects it, or
    ""."""

    kept: npt.NDArray[np.intp]
    rejected_by: npt.NDArray[np.object_]
    funnel: tuple[FunnelRow, ...]


def load_rules(rules_dir: Path, *, heuristics: bool = True) -> tuple[Rule, ...]:
    """The rules of a folder, in their order in the files, validity rules first: of validity.py, then of each file
    validity_*.py there is. This executes the folder's Python files.

    Raises UserError if a file is missing or contains no rule.
    """
    found: list[Rule] = []
    validity, *others = (rules_dir / name for name in RULE_FILES)
    for path in (validity, *sorted(rules_dir.glob("validity_*.py")), *(others if heuristics else ())):
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


def columns_of(configs: pd.DataFrame) -> Any:
    """The columns of the space as arrays of shape (configurations,), the input of rules and of the model.

    family:   a Categorical; comparing it with a name is about a hundred times faster than with an array of strings.
    largest:  the largest value of each axis in the whole space. families: the names of all families in it.
    """
    columns = {str(axis): configs[axis].to_numpy() for axis in configs.columns if axis != "family"}
    counted = {axis: column for axis, column in columns.items() if np.issubdtype(column.dtype, np.integer)}
    largest = {axis: int(column.max()) for axis, column in counted.items()} if len(configs) else {}
    family = pd.Categorical(configs["family"])
    return SimpleNamespace(family=family, families=frozenset(family.categories), largest=largest, **columns)


class SomeRows:
    """A subset of the rows of ``columns_of``; a column is taken when it is first used. ``largest`` and ``families``
    remain those of the whole space."""

    def __init__(self, columns: Any, rows: Rows) -> None:
        self.families, self.largest = columns.families, columns.largest
        self._columns, self._rows = columns, rows

    def __getattr__(self, name: str) -> Any:
        column = getattr(self._columns, name)[self._rows]
        setattr(self, name, column)
        return column


def apply(
    columns: Any, problem: Problem, device: Device, rules: tuple[Rule, ...], answers: RuleAnswers | None = None
) -> Pruned:
    """Applies all rules in order, and records for each configuration the first rule that rejects it.

    The rows of each family are taken apart from the others, so that a rule looks at none of a family that is not its.
    answers: of these rules for other problems with the same columns and device; None if there are no others.
    """
    answers = answers or RuleAnswers()
    used = [(1 + at, rule) for at, rule in enumerate(rules) if rule.backend in ("", device.target.backend)]
    rejected_by = np.zeros(len(columns.family), dtype=np.int32)  # 0: by none, else 1 + index of the rule
    for family, rows in rows_by_family(columns.family):
        of_family = [(number, rule) for number, rule in used if not rule.families or family in rule.families]
        answer = partial(answers.answer, family=family, problem=problem, device=device)
        rejected_by[rows] = first_rejecting(SomeRows(columns, rows), of_family, answer)
    names = np.array(["", *(rule.name for rule in rules)], dtype=object)
    cuts = np.bincount(rejected_by, minlength=len(names))
    funnel, left = [], len(rejected_by)
    for number, rule in used:
        cut = int(cuts[number])
        left -= cut
        funnel.append(FunnelRow(rule.name, rule.kind, rule.why, cut, left))
    return Pruned(np.flatnonzero(rejected_by == 0), names[rejected_by], tuple(funnel))


def rows_by_family(family: pd.Categorical) -> Iterator[tuple[str, Rows]]:
    """Each family with its rows: a slice where they follow one another, as in every space, else their positions."""
    for code, name in enumerate(family.categories):
        places = np.flatnonzero(family.codes == code)
        if len(places):
            first, last = int(places[0]), int(places[-1])
            yield name, slice(first, last + 1) if last - first + 1 == len(places) else places


def first_rejecting(
    columns: Any, rules: Iterable[tuple[int, Rule]], answer: Callable[..., Answer]
) -> npt.NDArray[np.int32]:
    """For each row the number of the first rule that rejects it, 0 for none. answer: see ``RuleAnswers.answer``.

    Rejected rows are removed from the columns only once they are more than a quarter of them, because copying columns
    costs more than evaluating a rule on some rows that are already rejected.
    """
    everything = columns
    left = len(columns.family)
    rows: Rows = slice(left)  # positions of ``columns`` among all rows; ``alive`` marks those not cut
    alive, rejected_by = np.ones(left, dtype=bool), np.zeros(left, dtype=np.int32)
    for number, rule in rules:
        cut = np.flatnonzero(alive & ~answer(rule, columns=columns, everything=everything, rows=rows))
        if len(cut):
            rejected_by[cut if isinstance(rows, slice) else rows[cut]] = number
            alive[cut] = False
            left -= len(cut)
        if not left:
            break
        if 4 * left < 3 * len(alive):
            rows = np.flatnonzero(alive) if isinstance(rows, slice) else rows[alive]
            columns, alive = SomeRows(everything, rows), np.ones(left, dtype=bool)
    return rejected_by


def require_some(pruned: Pruned, problem: Problem) -> None:
    """Raises UserError if no configuration is left, naming the rule that rejected the last one."""
    if len(pruned.kept):
        return
    last = [row for row in pruned.funnel if row.cut][-1]
    hint = "add --no_heuristics" if last.kind == Kind.HEURISTIC else "give a smaller size, or other axes by --space"
    if problem.kind != FIRST_KIND and last.kind != Kind.HEURISTIC:
        hint = "give a smaller size, or change the rule or the parameters"
    raise UserError(
        f"no configuration is left; the last {last.cut} were cut by {last.rule}: {last.why}",
        where=problem.key,
        hint=hint,
    )
