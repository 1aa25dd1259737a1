"""A regression over everything timed in a run, all sizes together, so that neighbouring sizes teach each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemm_tuner.records import Device
from gemm_tuner.search import features
from gemm_tuner.search.view import SizeView

Floats = npt.NDArray[np.float64]

TREES = 100
# A failure counts as a configuration this many times slower than the slowest of its size.
FAILURE = 2.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """By candidate of one size, in the order of its table: natural logarithm of the time, us, and its spread."""

    log_us: Floats
    spread: Floats


def estimates(sizes: Sequence[SizeView], device: Device, *, seed: int, jobs: int) -> list[Estimate]:
    """Learns from what is timed and estimates every candidate of every size. Needs a timing in some size."""
    from sklearn.ensemble import ExtraTreesRegressor  # takes about a second to import

    families = features.families_of([size.candidates for size in sizes])
    tables = [features.matrix(size.candidates, size.problem, device, families) for size in sizes]
    known, targets = [], []
    for size, table in zip(sizes, tables, strict=True):
        target = _targets(size)
        known.append(table[~np.isnan(target)])
        targets.append(target[~np.isnan(target)])
    forest = ExtraTreesRegressor(TREES, min_samples_leaf=2, max_features=0.5, random_state=seed, n_jobs=jobs)
    forest.fit(np.concatenate(known), np.concatenate(targets))
    everything = np.concatenate(tables)
    by_tree = np.stack([tree.predict(everything.astype(np.float32)) for tree in forest.estimators_])
    ends = np.cumsum([len(table) for table in tables])[:-1]
    means, spreads = np.split(by_tree.mean(axis=0), ends), np.split(by_tree.std(axis=0), ends)
    bases = [np.log(size.candidates["predicted_us"].to_numpy(np.float64)) for size in sizes]
    return [Estimate(mean + base, spread) for mean, base, spread in zip(means, bases, spreads, strict=True)]


def _targets(size: SizeView) -> Floats:
    """Natural logarithm of measured over predicted time by candidate; NaN where nothing is known."""
    predicted = size.candidates["predicted_us"].to_numpy(np.float64)
    worst = max(size.timed_us.values(), default=float(predicted.max()))
    times = [
        size.timed_us.get(str(name), FAILURE * worst if name in size.failed else np.nan)
        for name in size.candidates.index
    ]
    targets: Floats = np.log(np.array(times, dtype=np.float64) / predicted)
    return targets
