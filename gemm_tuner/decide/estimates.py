"""Estimates kernel times and their uncertainty from samples of several processes. Pure functions.

Model: the log time of finalist k in process p is kernel[k] + process[p] + e[p, k]. e contains the noise of calls and
the effect of the operands' addresses in that process, which differs between kernels. All estimates, absolute or
relative, use the same cells: one number per process and finalist.

The variance of e is estimated for each size (residuals of the two-way layout) and moderated by that of all sizes of the
run: G. K. Smyth, Linear Models and Empirical Bayes Methods for Assessing Differential Expression, Statistical
Applications in Genetics and Molecular Biology 3 (2004). For similar sizes this gives the pooled variance; a size whose
variance over processes is much larger keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import scipy  # submodules are loaded on first use; scipy.special takes half a second

Array = npt.NDArray[np.float64]

# Lower bound of variances: (0.001 % of a time) squared.
LEAST_VARIANCE = 1e-10
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Cells:
    """One value per process and finalist. log_us: shape (processes, names), logarithm of the time in microseconds; NaN
    if it did not run."""

    names: tuple[str, ...]
    log_us: Array

    @property
    def processes(self) -> int:
        return len(self.log_us)

    def of(self, names: Sequence[str]) -> Cells:
        """The columns of these names, in this order."""
        at = [self.names.index(name) for name in names]
        return Cells(tuple(names), self.log_us[:, at])

    def at(self, processes: Sequence[int]) -> Cells:
        """The rows of these processes, without names that did not run in any of them."""
        rows = self.log_us[list(processes)]
        ran = [at for at in range(len(self.names)) if not np.isnan(rows[:, at]).all()]
        return Cells(tuple(self.names[at] for at in ran), rows[:, ran])

    def column(self, name: str) -> Array:
        """The log times of a finalist in the processes that ran it, shape (n,)."""
        found = self.log_us[:, self.names.index(name)]
        return np.asarray(found[~np.isnan(found)])

    def us(self, name: str) -> float:
        """The time of a finalist in microseconds: the geometric mean over processes."""
        return float(np.exp(np.mean(self.column(name))))


@dataclass(frozen=True)
class Spread:
    """variance: of one cell, in squared log time. degrees: degrees of freedom of the estimate; 0: unknown."""

    variance: float
    degrees: float


NOTHING_KNOWN = Spread(0.0, 0.0)


def centre(log_us: Array) -> Array:
    """The median over rounds of each column, after subtracting the shift of each round. log_us: (rounds, names).

    The shift of a round (from drifting clocks) is the median over finalists of the difference from their medians.
    """
    middle = np.median(log_us, axis=0)
    shift = np.median(log_us - middle, axis=1, keepdims=True)
    return np.asarray(np.median(log_us - shift, axis=0))


def cells_of(processes: Sequence[Mapping[str, Sequence[float]]]) -> Cells:
    """The cells from samples in microseconds by name, one mapping per process; sample i is from round i.

    If the finalists of a process have different numbers of rounds, only the rounds that all have are used.
    """
    names = tuple(dict.fromkeys(name for process in processes for name in process))
    rows = [_row(names, process) for process in processes]
    return Cells(names, np.array(rows, dtype=np.float64).reshape(len(rows), len(names)))


def _row(names: Sequence[str], samples_us: Mapping[str, Sequence[float]]) -> Array:
    row = np.full(len(names), np.nan)
    rounds = min((len(samples) for samples in samples_us.values()), default=0)
    if rounds:
        ran = [at for at, name in enumerate(names) if name in samples_us]
        row[ran] = centre(np.log(np.array([samples_us[names[at]][:rounds] for at in ran]).T))
    return row


def call_noise(samples_us: Sequence[float], duplicate_us: Sequence[float]) -> float:
    """The relative standard deviation of a call, from two series of samples of one kernel; NaN without samples.

    From the median absolute deviation of the differences within rounds, which is robust against outliers.
    """
    rounds = min(len(samples_us), len(duplicate_us))
    if not rounds:
        return float("nan")
    apart = np.log(samples_us[:rounds]) - np.log(duplicate_us[:rounds])
    return float(np.median(np.abs(apart - np.median(apart))) / scipy.special.ndtri(0.75) / np.sqrt(2))


def successive_noise(series_us: Iterable[Sequence[float]], least: int) -> float | None:
    """The relative standard deviation of a call, from series of successive calls of one kernel each; None for fewer
    than ``least`` pairs of successive calls.

    From the median absolute difference of successive calls, which drifts of the clocks hardly change.
    """
    apart = np.concatenate([np.empty(0), *(np.diff(np.log(samples_us)) for samples_us in series_us)])
    if len(apart) < least:
        return None
    return float(np.median(np.abs(apart)) / NormalDist().inv_cdf(0.75) / np.sqrt(2))


def difference_spread(cells: Cells) -> Spread:
    """The variance of e: from the residuals of the two-way layout, over processes that ran the same finalists.

    NOTHING_KNOWN for a single process.
    """
    squares, degrees = 0.0, 0
    there = ~np.isnan(cells.log_us)
    for pattern in {tuple(row) for row in there.tolist()}:
        block = cells.log_us[(there == pattern).all(axis=1)][:, list(pattern)]
        rows, columns = block.shape
        if rows > 1 and columns > 1:
            left = block - block.mean(axis=0) - block.mean(axis=1, keepdims=True) + block.mean()
            squares += float((left**2).sum())
            degrees += (rows - 1) * (columns - 1)
    return Spread(max(LEAST_VARIANCE, squares / degrees), degrees) if degrees else NOTHING_KNOWN


def level_spread(cells: Cells) -> Spread:
    """The variance of a finalist's log time over processes, including the shift common to all finalists.

    The finalists of a process shift together, so each process is one degree of freedom.
    """
    known = cells.log_us[:, (~np.isnan(cells.log_us)).sum(axis=0) > 1]
    if cells.processes < 2 or not known.size:
        return NOTHING_KNOWN
    variance = float(np.mean(np.nanvar(known, axis=0, ddof=1)))
    return Spread(max(LEAST_VARIANCE, variance), cells.processes - 1)


def common_spread(spreads: Sequence[Spread]) -> Spread:
    """The prior variance over all sizes of a run, by Smyth's method of moments (section 6.2).

    The degrees of freedom are infinite if the sizes' variances differ by no more than chance.
    """
    known = [one for one in spreads if one.degrees]
    if len(known) < 2:
        return NOTHING_KNOWN
    half = np.array([one.degrees for one in known]) / 2
    variance = np.array([one.variance for one in known])
    level = np.log(variance) - scipy.special.digamma(half) + np.log(half)
    excess = float(np.var(level, ddof=1) - np.mean(scipy.special.polygamma(1, half)))
    if excess <= 0:
        return Spread(float(np.sum(variance * half) / np.sum(half)), float("inf"))
    degrees = 2 * trigamma_inverse(excess)
    return Spread(float(np.exp(np.mean(level) + scipy.special.digamma(degrees / 2) - np.log(degrees / 2))), degrees)


def trigamma_inverse(value: float) -> float:
    """x with trigamma(x) = value, for value > 0."""

    low, high = 1e-8, 1e8
    if value >= scipy.special.polygamma(1, low):
        return low
    if value <= scipy.special.polygamma(1, high):
        return high
    return float(scipy.optimize.brentq(lambda x: float(scipy.special.polygamma(1, x)) - value, low, high))


def moderated(own: Spread, common: Spread, most_degrees: float) -> Spread:
    """A size's variance: the mean of its own and the run's variance, weighted by degrees of freedom (Smyth, section 3).

    most_degrees: upper bound of the result's degrees of freedom: those of all sizes together. As in Smyth's method,
    ``common`` is estimated from all sizes including this one, so in a run of few sizes its own cells count twice.
    """
    if not common.degrees:
        return own
    if not own.degrees:
        return Spread(common.variance, min(common.degrees, most_degrees))
    degrees = min(common.degrees + own.degrees, most_degrees)
    if np.isinf(common.degrees):
        return Spread(common.variance, degrees)
    variance = (common.degrees * common.variance + own.degrees * own.variance) / (common.degrees + own.degrees)
    return Spread(variance, degrees)


def load() -> None:
    """Imports what judging finals needs of scipy, in about a second: while GPUs work, it costs nothing."""
    import scipy.optimize
    import scipy.special  # noqa: F401


@lru_cache(maxsize=4096)
def best_of_critical(others: int, degrees: float) -> float:
    """The number of standard errors (of a difference) by which a finalist must be slower than the observed best to be
    significantly slower; infinite without degrees of freedom.

    Multiple comparisons with the best: J. C. Hsu, Simultaneous Confidence Intervals for all Distances from the "Best",
    Annals of Statistics 9 (1981). It is Dunnett's one-sided critical value for ``others`` comparisons: the true best is
    called slower with a probability of at most 1 - CONFIDENCE, whichever finalist was observed as the best.
    """
    if others < 1 or degrees <= 0:
        return float("inf")

    points, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()
    shares = (np.arange(400) + 0.5) / 400
    scale = np.sqrt(scipy.special.chdtri(degrees, 1 - shares) / degrees) if np.isfinite(degrees) else np.ones(1)

    def excess(value: float) -> float:
        below = scipy.special.ndtr(points[:, None] + np.sqrt(2) * value * scale[None, :]) ** others
        return float(weights @ below.mean(axis=1)) - CONFIDENCE

    high = 4.0
    while excess(high) < 0:
        high *= 2
    return float(scipy.optimize.brentq(excess, 0.0, high, xtol=1e-4))


def interval_factor(spread: Spread, processes: int) -> float:
    """f such that [time / f, time * f] is the CONFIDENCE interval of a mean over ``processes`` processes."""
    share = (1 + CONFIDENCE) / 2
    quantile = (
        scipy.special.stdtrit(spread.degrees, share) if np.isfinite(spread.degrees) else scipy.special.ndtri(share)
    )
    return float(np.exp(quantile * np.sqrt(spread.variance / processes)))


def ratio_interval(over: tuple[float, float], under: tuple[float, float]) -> tuple[float, float]:
    """The confidence interval of a ratio of two times from the intervals of both, each symmetric in the logarithm.

    It assumes independent errors, whose squares add up; for times from the same processes it is wider than necessary.
    """
    ratio = float(np.sqrt(over[0] * over[1] / (under[0] * under[1])))
    half = [np.log(high / low) / 2 for low, high in (over, under)]
    factor = float(np.exp(np.hypot(*half)))
    return ratio / factor, ratio * factor


def quantiles_us(samples_us: Sequence[float]) -> tuple[float, float]:
    """The 20th and 80th percentile of samples, for results and reports."""
    low, high = np.quantile(samples_us, (0.2, 0.8))
    return float(low), float(high)


# The range of n normally distributed numbers, by n: (mean and standard deviation of the range, in units of the numbers'
# standard deviation; equivalent degrees of freedom). D. C. Montgomery, Introduction to Statistical Quality Control,
# appendix VI (d2, d3); P. B. Patnaik, Biometrika 37 (1950).
RANGES = {
    2: (1.128, 0.853, 1.0), 3: (1.693, 0.888, 2.0), 4: (2.059, 0.880, 2.9), 5: (2.326, 0.864, 3.8),
    6: (2.534, 0.848, 4.7), 7: (2.704, 0.833, 5.5), 8: (2.847, 0.820, 6.3), 9: (2.970, 0.808, 7.0),
    10: (3.078, 0.797, 7.7),
}  # fmt: skip


def spread_of_range(range_pct: float, processes: int) -> Spread:
    """The variance of log times over processes if only their range is known, in percent of the smallest time."""
    known = RANGES.get(min(processes, max(RANGES)))
    if known is None:
        return NOTHING_KNOWN
    mean, deviation, degrees = known
    return Spread(max(LEAST_VARIANCE, np.log1p(range_pct / 100) ** 2 / (mean**2 + deviation**2)), degrees)


def percent(log_ratio: float) -> float:
    """A log ratio of two times as a difference in percent of the second time."""
    return float(np.expm1(log_ratio) * 100)
