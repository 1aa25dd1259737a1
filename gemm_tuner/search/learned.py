"""A regression on all times of a run. All sizes are fitted together, so that they inform each other."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from gemm_tuner.core.records import Device
from gemm_tuner.core.workload import workload_of
from gemm_tuner.search.view import SizeView

Floats = npt.NDArray[np.float64]

TREES = 100
# 40 sizes take 3.5 s with one of 16 cores and 1.8 to 2.1 with 2, 4 and 16; of 32 cores 1.8 to 2.3 with 4, 15 and 30.
MOST_JOBS = 8
# A failed configuration is fitted as this factor times the slowest time of its size.
FAILURE = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Expected times of the candidates of one size, as arrays of shape (candidates,) in the order of its table.

    log_us: natural logarithm of the time in microseconds, mean over the trees.
    spread: standard deviation of it over the trees.
    gain:   expected improvement over the best time, as a share of it; a tree that expects none counts as 0.
    """

    log_us: Floats
    spread: Floats
    gain: Floats


def load() -> None:
    """Imports the regression, which takes about a second."""
    import sklearn.ensemble  # noqa: F401


def features_of(sizes: Sequence[SizeView], device: Device) -> list[Floats]:
    """The features of every candidate of every size, in the order of ``sizes``; they do not depend on times."""
    families = tuple(sorted({str(name) for size in sizes for name in size.candidates["family"].unique()}))
    return [workload_of(size.problem.kind).features(size.candidates, size.problem, device, families) for size in sizes]


def estimates(sizes: Sequence[SizeView], tables: Sequence[Floats], *, seed: int, jobs: int) -> list[Estimate]:
    """Fits the regression to all known times and estimates every candidate of every size, in the order of ``sizes``.

    At least one size must have a time. tables: ``features_of`` the sizes. seed: of the trees. jobs: number of threads,
    at most MOST_JOBS.
    """
    from sklearn.ensemble import ExtraTreesRegressor  # about a second to import

    jobs = min(jobs, MOST_JOBS)
    targets = [_targets(size) for size in sizes]
    known = [~np.isnan(target) for target in targets]
    forest = ExtraTreesRegressor(TREES, min_samples_leaf=2, max_features=0.5, random_state=seed, n_jobs=jobs)
    forest.fit(
        np.concatenate([table[rows] for table, rows in zip(tables, known, strict=True)]),
        np.concatenate([target[rows] for target, rows in zip(targets, known, strict=True)]),
    )
    rows = np.concatenate(tables).astype(np.float32)
    by_tree = np.empty((TREES, len(rows)))

    def fill(number: int) -> None:
        by_tree[number] = forest.estimators_[number].predict(rows, check_input=False)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(fill, range(TREES)))
    parts = np.split(by_tree, np.cumsum([len(table) for table in tables])[:-1], axis=1)
    return [_estimate(size, part) for size, part in zip(sizes, parts, strict=True)]


def _targets(size: SizeView) -> Floats:
    """Natural logarithm of measured over predicted time, shape (candidates,); NaN if neither timed nor failed."""
    predicted = size.candidates["predicted_us"]
    worst = max(size.timed_us.values(), default=float(predicted.max()))
    known = {**dict.fromkeys(size.failed, FAILURE * worst), **size.timed_us}
    times = pd.Series(known, dtype=np.float64).reindex(size.candidates.index)
    targets: Floats = np.log((times / predicted).to_numpy(np.float64))
    return targets


def _estimate(size: SizeView, ratios: Floats) -> Estimate:
    """The estimate from the trees' outputs. ratios: logarithm of time over prediction, shape (trees, candidates)."""
    log_predicted = np.log(size.candidates["predicted_us"].to_numpy(np.float64))
    by_tree = ratios + log_predicted
    log_best = np.log(min(size.timed_us.values(), default=np.inf))
    gain = 1 - np.exp(np.minimum(by_tree - log_best, 0)).mean(axis=0)
    return Estimate(by_tree.mean(axis=0), by_tree.std(axis=0), gain)
