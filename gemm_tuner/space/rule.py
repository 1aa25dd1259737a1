"""What a rule file imports: the ``rule`` decorator and its two kinds.

A rule is a function of the configurations' columns, the problem and the device. It returns True for configurations to
keep; the first line of its docstring is the reason for cutting the others. Columns are numpy arrays of shape
(configurations,), so ``&``, ``|`` and ``np.where`` replace and, or and if. The answer for a configuration must not
depend on which others are in the columns: ``c.largest["SPLIT_K"]`` is the largest of that axis in the whole space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gemm_tuner.core.records import Device, Problem

Predicate = Callable[[Any, Problem, Device], Any]


class Kind(str, Enum):
    """VALIDITY: a limit of the hardware or the kernel, never skipped. HEURISTIC: from a measurement or from experience,
    dropped by ``--no_heuristics``."""

    VALIDITY = "validity"
    HEURISTIC = "heuristic"


VALIDITY, HEURISTIC = Kind.VALIDITY, Kind.HEURISTIC


@dataclass(frozen=True, slots=True)
class Rule:
    """A named predicate. families, backend: where it applies; empty means everywhere."""

    name: str
    kind: Kind
    why: str
    keep: Predicate
    families: tuple[str, ...] = ()
    backend: str = ""


def rule(kind: Kind, *, families: tuple[str, ...] = (), backend: str = "") -> Callable[[Predicate], Rule]:
    """Makes a function a Rule. ``backend`` ("cuda" or "hip") and ``families`` restrict where it applies.

    Raises ValueError for a function without a docstring.
    """

    def decorate(predicate: Predicate) -> Rule:
        why = (predicate.__doc__ or "").strip().split("\n")[0]
        if not why:
            raise ValueError(f"rule {predicate.__name__} needs a docstring whose first line says why")
        return Rule(predicate.__name__, kind, why, predicate, families, backend)

    return decorate


def next_power_of_2(value: float) -> int:
    """The smallest power of two not below ``value``, a positive whole number."""
    return 1 << max(0, int(value) - 1).bit_length()
