"""Answers of rules for a whole family, kept for problems of which a rule reads the same.

Most rules read nothing of a problem but its types and layouts, so that one answer serves all sizes of a batch.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.space.rule import Rule

Answer = npt.NDArray[np.bool_]

# Different problems, by what a rule reads of them, whose answers are kept: a batch rarely mixes more layouts and types.
MOST_KEPT = 8
WHOLE = ""  # stands for the problem itself among the names of what is read


class Watched:
    """Stands in for a problem, and notes what is read of it: the values by name."""

    __slots__ = ("_problem", "read")

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.read: dict[str, Any] = {}

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Of what it stands for, as isinstance() looks it up."""
        return type(self._problem)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        self.read[WHOLE] = self._problem
        return vars(self._problem)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._problem, name)
        if callable(value):  # what it will read is not known
            self.read[WHOLE] = self._problem
        else:
            self.read[name] = value
        return value

    def __repr__(self) -> str:
        self.read[WHOLE] = self._problem
        return repr(self._problem)

    def __eq__(self, other: object) -> bool:
        self.read[WHOLE] = self._problem
        return bool(self._problem == other)

    def __hash__(self) -> int:
        self.read[WHOLE] = self._problem
        return hash(self._problem)


@dataclass
class Kept:
    """whole: the answer for all rows of a family; None until a second problem needs it, and where the rule does not
    take rows that earlier rules reject (``takes_all``)."""

    read: dict[str, Any]
    whole: Answer | None = None
    takes_all: bool = True

    def serves(self, problem: Problem) -> bool:
        return all((getattr(problem, name) if name else problem) == value for name, value in self.read.items())


@dataclass
class RuleAnswers:
    """The answers for one space on one device."""

    _kept: dict[Hashable, deque[Kept]] = field(default_factory=dict)

    def answer(
        self, rule: Rule, family: str, columns: Any, everything: Any, rows: Any, problem: Problem, device: Device
    ) -> Answer:
        """``evaluate`` for some rows of a family. columns: of these rows. everything: of all rows of the family.

        rows: positions of ``columns`` in ``everything``.
        """
        of_rule = self._kept.setdefault((rule.name, family), deque(maxlen=MOST_KEPT))
        kept = next((one for one in of_rule if one.serves(problem)), None)
        if kept is None:
            answer, read = watched(rule, columns, problem, device)
            of_rule.append(Kept(read))
            return answer
        if kept.whole is None and kept.takes_all:
            try:
                with np.errstate(all="ignore"):  # rows that earlier rules reject may divide by zero
                    kept.whole, kept.read = watched(rule, everything, problem, device)
            except UserError:  # or be none of what a rule knows
                kept.takes_all = False
        return evaluate(rule, columns, problem, device) if kept.whole is None else kept.whole[rows]


def watched(rule: Rule, columns: Any, problem: Problem, device: Device) -> tuple[Answer, dict[str, Any]]:
    """The answer of a rule, and what it has read of the problem. One that takes no stand-in has read all of it."""
    stand_in: Any = Watched(problem)
    try:
        return evaluate(rule, columns, stand_in, device), stand_in.read
    except UserError:
        return evaluate(rule, columns, problem, device), {WHOLE: problem}


def evaluate(rule: Rule, columns: Any, problem: Problem, device: Device) -> Answer:
    """Evaluates a rule: True for rows to keep, shape (configurations,). Raises UserError if the rule raises or returns
    another type or shape."""
    code = getattr(inspect.unwrap(rule.keep), "__code__", None)
    where = f"{code.co_filename}, rule {rule.name}" if code else f"rule {rule.name}"
    try:
        answer = np.asarray(rule.keep(columns, problem, device))
    except UserError:
        raise  # raised by an expression of a spec, whose message already has the place
    except Exception as error:
        raise UserError(
            f"fails on {problem.key}: {type(error).__name__}: {error}", where=where, hint="mend it, or see --rules"
        ) from error
    shape = columns.family.codes.shape
    if answer.dtype != np.bool_ or answer.shape not in ((), shape):
        raise UserError(
            f"gives {answer.dtype} of shape {answer.shape}",
            where=where,
            accepted=f"True for what is kept and False for the rest, of shape {shape} or one for all",
        )
    return np.broadcast_to(answer, shape)
