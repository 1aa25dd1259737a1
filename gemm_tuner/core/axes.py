"""What a kind of problem says of its axes: their distances in a search, and values that come with its problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.records import Device, Problem

OwnRule = tuple[str, str, Callable[[Any, Problem, Device], Any]]


@dataclass(frozen=True)
class Axis:
    """How a search compares the values of an axis.

    distance: between configurations whose values differ by a factor of two.
    any_step: whether configurations are neighbours however far their values are apart, as those are that compute the
              same tiles; otherwise their values must be adjacent.
    """

    distance: float = 1.0
    any_step: bool = False


@dataclass(frozen=True)
class OwnSpace:
    """A search space that comes with the problems instead of from space and rule files.

    families:   the values of each axis, by family.
    rules:      (name, reason, predicate); the predicate takes (columns, problem, device) and is True for rows to keep.
    heuristics: more of these, which --no_heuristics turns off.
    """

    families: Mapping[str, Mapping[str, Any]]
    rules: tuple[OwnRule, ...]
    heuristics: tuple[OwnRule, ...] = ()
