"""Minimum set cover: the fewest names whose sets together contain every item.

Solved exactly as an integer program with HiGHS (scipy.optimize.milp), or greedily if that would take too long. For n
items the greedy cover is at most H(n) = 1 + 1/2 + ... + 1/n times the minimum: V. Chvatal, A Greedy Heuristic for the
Set-Covering Problem, Mathematics of Operations Research 4 (1979).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

EXACT, GREEDY = "exact", "greedy"
SOLVER_SECONDS = 20.0
MAX_CELLS = 2_000_000  # items x sets, the largest problem for the solver


@dataclass(frozen=True, slots=True)
class Cover:
    """names: in the order of the sets. method: EXACT (no smaller cover exists) or GREEDY."""

    names: tuple[str, ...]
    method: str


def smallest(sets: Mapping[str, frozenset[int]], cost: Mapping[str, float], *, max_cells: int = MAX_CELLS) -> Cover:
    """The smallest cover of all items. Of equal sets only the one with the least cost is considered.

    max_cells: above this product of items and sets the greedy method is used.
    """
    items = sorted(frozenset().union(*sets.values()))
    kept = undominated(sets, cost)
    chosen = _exact(items, kept) if len(items) * len(kept) <= max_cells else None
    names = chosen if chosen is not None else _greedy(frozenset(items), kept, cost)
    return Cover(tuple(name for name in sets if name in names), EXACT if chosen is not None else GREEDY)


def undominated(sets: Mapping[str, frozenset[int]], cost: Mapping[str, float]) -> dict[str, frozenset[int]]:
    """The sets that are not a subset of another; of equal sets the one with the least cost, then the first."""
    cheapest: dict[frozenset[int], str] = {}
    for name, items in sets.items():
        if items not in cheapest or cost[name] < cost[cheapest[items]]:
            cheapest[items] = name
    kept: list[frozenset[int]] = []
    for items in sorted(cheapest, key=len, reverse=True):
        if items and not any(items < other for other in kept):
            kept.append(items)
    return {cheapest[items]: items for items in kept}


def _exact(items: list[int], sets: Mapping[str, frozenset[int]]) -> set[str] | None:
    """The minimum cover; None if the solver did not prove it minimal within SOLVER_SECONDS."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    names = list(sets)
    holds = np.array([[item in sets[name] for name in names] for item in items], dtype=float)
    found = milp(
        np.ones(len(names)),
        integrality=np.ones(len(names)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(holds, lb=1),
        options={"time_limit": SOLVER_SECONDS},
    )
    if found.status != 0 or found.x is None:
        return None
    return {name for name, taken in zip(names, found.x, strict=True) if taken > 0.5}


def _greedy(items: frozenset[int], sets: Mapping[str, frozenset[int]], cost: Mapping[str, float]) -> set[str]:
    """Repeatedly takes the set with most of the remaining items, and finally removes redundant sets."""
    left, taken = set(items), []
    while left:
        best = max(sets, key=lambda name: (len(sets[name] & left), -cost[name]))
        taken.append(best)
        left -= sets[best]
    for name in list(taken):
        others = [sets[other] for other in taken if other != name]
        if others and items <= frozenset().union(*others):
            taken.remove(name)
    return set(taken)
