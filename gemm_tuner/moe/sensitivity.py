"""Whether another configuration would have been chosen for one of the routings alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median

LEAST_PROCESSES = 2
LEAST_GAIN = 0.01  # of a time: what differs by less is called a tie


def is_sensitive(times: Sequence[Mapping[str, Sequence[float]]], chosen: str, routings: int) -> bool | None:
    """Whether a finalist beats the chosen one for one of the routings in every process, and by LEAST_GAIN in the mean
    over processes; None where that cannot be told.

    times: of each process, microseconds of the calls in order, which take the routings in turn. Which routing is the
    first does not matter here.
    """
    whole = [one for one in times if chosen in one and len({len(us) for us in one.values()}) == 1]
    if routings < 2 or len(whole) < LEAST_PROCESSES or min(len(one[chosen]) for one in whole) < 2 * routings:
        return None
    others = set.intersection(*(set(one) for one in whole)) - {chosen}
    for first in range(routings):
        for other in others:
            logs = [math.log(_typical(one[other], first, routings) / _typical(one[chosen], first, routings))
                    for one in whole]  # fmt: skip
            if max(logs) < 0 and mean(logs) < math.log1p(-LEAST_GAIN):
                return True
    return False


def _typical(us: Sequence[float], first: int, step: int) -> float:
    return median(us[first::step])
