"""What the samples of a final say of its median."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

CONFIDENCE = 0.95


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The narrowest pair of samples, as far from either end as each other, that holds the true median.

    No distribution is assumed: of n samples, the number below the true median is binomial with p = 1/2
    (W. J. Conover, Practical Nonparametric Statistics, confidence interval for a quantile). None when
    there are too few samples for this confidence: fewer than 6 for 95 %.
    """
    count, below, place = len(samples), 0.0, -1
    for rank in range(count // 2):
        below += comb(count, rank) / 2**count
        if 2 * below > 1 - confidence:
            break
        place = rank
    if place < 0:
        return None
    ordered = sorted(samples)
    return ordered[place], ordered[count - 1 - place]
