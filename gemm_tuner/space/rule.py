"""The interface of rule files: the ``rule`` decorator and the two kinds of rules.

A rule is a function of the columns of the configurations, the problem and the device. It returns True for
configurations to keep; the first line of its docstring is the reason for rejecting the others. Columns are numpy arrays
of shape (configurations,), so ``&``, ``|`` and ``np.where`` replace and, or and if. The result for a configuration must
not depend on which other rows are present: of those that differ in no column that rules have read, one is there for
all. ``c.largest["SPLIT_K"]`` is the largest value in the whole space, ``c.values_of("gemv", "SPLIT_K")`` are those that
a family has in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gemm_tuner.core.records import Device, Problem

Predicate = Callable[[Any, Problem, Device], Any]


class Kind(str, Enum):
    """VALIDITY: a limit of the hardware or the kernel, always applied. HEURISTIC: based on a measurement or experience,
    turned off by ``--no_heuristics``."""

    VALIDITY = "validity"
    HEURISTIC = "heuristic"


VALIDITY, HEURISTIC = Kind.VALIDITY, Kind.HEURISTIC


@dataclass(frozen=True, slots=True)
class Rule:
    """A named predicate. families, backend: the rule applies to these only; empty means to all. whole_families: it says
    the same of all configurations of a family, and is asked before the others, which then see none of what it cuts."""

    name: str
    kind: Kind
    why: str
    keep: Predicate
    families: tuple[str, ...] = ()
    backend: str = ""
    whole_families: bool = False


def rule(
    kind: Kind, *, families: tuple[str, ...] = (), backend: str = "", whole_families: bool = False
) -> Callable[[Predicate], Rule]:
    """Decorator that turns a function into a Rule. backend ("cuda" or "hip") and families restrict where it applies;
    whole_families: see ``Rule``.

    Raises ValueError for a function without a docstring.
    """

    def decorate(predicate: Predicate) -> Rule:
        why = (predicate.__doc__ or "").strip().split("\n")[0]
        if not why:
            raise ValueError(f"rule {predicate.__name__} needs a docstring whose first line says why")
        return Rule(predicate.__name__, kind, why, predicate, families, backend, whole_families)

    return decorate


def next_power_of_2(value: float) -> int:
    """The smallest power of two not below ``value``, a positive whole number."""
    return 1 << max(0, int(value) - 1).bit_length()
