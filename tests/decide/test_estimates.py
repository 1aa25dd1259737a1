"""Numbers of the estimates against tables, other libraries and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from gemm_tuner.decide import estimates
from gemm_tuner.decide.estimates import NOTHING_KNOWN, Spread, best_of_critical, cells_of, common_spread, moderated


@pytest.mark.parametrize(("others", "degrees", "table"), [(1, 10, 1.81), (2, 10, 2.15), (4, 20, 2.30), (9, 60, 2.48)])
def test_critical_values_are_those_of_dunnetts_one_sided_table(others: int, degrees: int, table: float) -> None:
    """C. W. Dunnett, A Multiple Comparison Procedure for Comparing Several Treatments with a Control, JASA 50 (1955),
    table 1a: one-sided, 95 %."""
    assert best_of_critical(others, float(degrees)) == pytest.approx(table, abs=0.011)


@pytest.mark.parametrize(("others", "degrees"), [(3, 6.0), (15, 30.0)])
def test_critical_values_leave_5_percent_of_a_multivariate_t(others: int, degrees: float) -> None:
    from scipy import stats  # a second to import

    correlation = np.full((others, others), 0.5) + 0.5 * np.eye(others)
    drawn = stats.multivariate_t(shape=correlation, df=degrees, seed=1).rvs(100_000)
    assert np.mean(drawn.max(axis=1) > best_of_critical(others, degrees)) == pytest.approx(0.05, abs=0.004)


def test_without_degrees_of_freedom_nothing_is_told_apart() -> None:
    assert best_of_critical(3, 0.0) == float("inf")
    assert best_of_critical(1, float("inf")) == pytest.approx(1.645, abs=1e-3)


@pytest.mark.parametrize("value", [1e-6, 0.01, 1.0, 50.0])
def test_the_trigamma_function_is_inverted(value: float) -> None:
    assert float(special.polygamma(1, estimates.trigamma_inverse(value))) == pytest.approx(value, rel=1e-4)


def test_sizes_that_are_alike_share_one_variance() -> None:
    dice = np.random.default_rng(0)
    own = [Spread(float(v), 10) for v in 4.0 * dice.chisquare(10, 200) / 10]
    common = common_spread(own)
    assert common.variance == pytest.approx(4.0, rel=0.1) and common.degrees > 100
    assert moderated(own[0], common, 2000).variance == pytest.approx(4.0, rel=0.2)


def test_sizes_that_differ_keep_most_of_their_own() -> None:
    """Variances from an inverse chi-square prior of 4 degrees of freedom, as Smyth's model has them."""
    dice = np.random.default_rng(0)
    own = [Spread(float(4 / dice.chisquare(4) * dice.chisquare(30) / 30), 30) for _ in range(500)]
    common = common_spread(own)
    assert common.degrees == pytest.approx(4.0, rel=0.3) and common.variance == pytest.approx(1.0, rel=0.2)
    assert moderated(Spread(100.0, 30), common, 1e6).variance > 80


def test_nothing_is_learnt_from_one_size() -> None:
    assert common_spread([Spread(1.0, 5)]) == NOTHING_KNOWN
    assert moderated(Spread(1.0, 5), NOTHING_KNOWN, 5) == Spread(1.0, 5)
    assert moderated(NOTHING_KNOWN, Spread(2.0, 8.0), 20) == Spread(2.0, 8.0)


def test_what_shifts_a_round_for_all_is_no_difference() -> None:
    drift = np.array([1.0, 1.3, 0.9, 1.1, 1.05])
    cells = cells_of([{"a": 100 * drift, "b": 102 * drift, "c": 104 * drift}])
    assert [cells.us(name) / cells.us("a") for name in "abc"] == pytest.approx([1.0, 1.02, 1.04])
    assert estimates.difference_spread(cells) == NOTHING_KNOWN
    again = cells_of([{name: 100 * (1 + 0.02 * at) * drift for at, name in enumerate("abc")} for _ in range(2)])
    assert estimates.difference_spread(again).variance == estimates.LEAST_VARIANCE


def test_the_time_of_one_contender_is_the_median_of_its_calls() -> None:
    assert cells_of([{"a": (3.0, 1.0, 2.5, 9.0, 2.0)}]).us("a") == pytest.approx(2.5)


def test_rounds_that_only_one_has_say_nothing() -> None:
    assert cells_of([{"a": (3.0, 1.0, 2.0, 50.0), "b": (4.0, 2.0, 3.0)}]).us("a") == pytest.approx(2.0, rel=0.2)


def test_the_residuals_of_processes_that_ran_the_same_contenders_are_pooled() -> None:
    rows = [{"a": (1.0,), "b": (2.0,), "c": (3.0,)}, {"a": (1.1,), "b": (2.0,), "c": (3.0,)}]
    more = [{"a": (1.0,), "b": (2.2,)}, {"a": (1.0,), "b": (2.0,)}, {"a": (5.0,)}]
    assert estimates.difference_spread(cells_of([*rows, *more])).degrees == 2 + 1
    assert estimates.difference_spread(cells_of(more[2:])) == NOTHING_KNOWN
    apart = np.log(1.1)
    expected = 2 * (apart**2 / 4) * (4 / 9 + 1 / 9 + 1 / 9) / 2
    assert estimates.difference_spread(cells_of(rows)).variance == pytest.approx(expected)


@pytest.mark.parametrize("processes", [2, 3, 5, 7])
def test_a_range_tells_the_variance(processes: int) -> None:
    logs = np.random.default_rng(0).normal(0, 0.03, (4000, processes))
    found = [estimates.spread_of_range(float(np.expm1(np.ptp(one)) * 100), processes).variance for one in logs]
    assert np.mean(found) == pytest.approx(0.03**2, rel=0.05)
    assert estimates.spread_of_range(1.0, 1) == NOTHING_KNOWN


def test_the_interval_of_a_ratio_holds_it_as_often_as_those_of_the_times_do() -> None:
    generator, spreads, trials, processes = (
        np.random.default_rng(0),
        (Spread(1e-4, np.inf), Spread(9e-4, np.inf)),
        4000,
        3,
    )
    times = [generator.normal(0, np.sqrt(one.variance / processes), trials) for one in spreads]
    factors = [estimates.interval_factor(one, processes) for one in spreads]
    held = 0
    for logs in zip(*times, strict=True):
        over, under = ((us / factor, us * factor) for us, factor in zip(np.exp(logs), factors, strict=True))
        low, high = estimates.ratio_interval(over, under)
        held += low <= 1 <= high
    assert held / trials == pytest.approx(estimates.CONFIDENCE, abs=0.012)
