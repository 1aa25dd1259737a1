"""Distance between configurations: the first sample consists of distant ones, and the last round tries neighbours of
the fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from gemm_tuner.core.axes import Axis

# Distance between two families, in units of a factor of two.
FAMILY_DISTANCE = 4.0


def axes_of(candidates: pd.DataFrame, known: Mapping[str, Axis]) -> dict[str, Axis]:
    """The columns of a candidate table that are numeric axes, NaN for families without the axis. known: the axes that
    are not ``Axis()``."""
    columns = candidates.drop(columns=["family", "predicted_us"], errors="ignore")
    return {str(name): known.get(str(name), Axis()) for name in columns.select_dtypes(["number", "bool"]).columns}


def diverse_sample(
    candidates: pd.DataFrame,
    count: int,
    similarity_penalty: float,
    known: Mapping[str, Axis],
    kernels: npt.NDArray[np.uint64],
    price: npt.NDArray[np.float64],
) -> list[str]:
    """``count`` names for the first round that are predicted to be fast and differ from each other.

    Chosen greedily by the smallest log(predicted time) + similarity_penalty * exp(-distance), where distance is that to
    the nearest configuration chosen so far: the sum of |log2 ratio| times the axis's distance. known: see ``axes_of``.

    kernels, price: of ``CompileWork.prices``. The price is added, until a configuration with the kernel is chosen.
    """
    axes = axes_of(candidates, known)
    weights = np.array([axis.distance for axis in axes.values()])
    position = np.log2(candidates[[*axes]].fillna(0).to_numpy(np.float64) + 1) * weights
    family = candidates["family"].to_numpy()
    log_predicted = np.log(candidates["predicted_us"].to_numpy(np.float64))
    nearest = np.full(len(candidates), np.inf)
    free = np.ones(len(candidates), dtype=bool)
    left = price.copy()
    chosen = []
    for _ in range(min(count, len(candidates))):
        cost = np.where(free, log_predicted + similarity_penalty * np.exp(-nearest) + left, np.inf)
        pick = int(np.argmin(cost))
        chosen.append(str(candidates.index[pick]))
        free[pick] = False
        left[kernels == kernels[pick]] = 0.0
        distance = np.abs(position - position[pick]).sum(axis=1) + FAMILY_DISTANCE * (family != family[pick])
        nearest = np.minimum(nearest, distance)
    return chosen


def neighbours(candidates: pd.DataFrame, names: Sequence[str], known: Mapping[str, Axis]) -> npt.NDArray[np.bool_]:
    """A mask, shape (candidates,), of those that differ from one of ``names`` in exactly one axis by one step.

    The steps of an axis are its values among the family's candidates. Configurations of other families are not
    neighbours. known: see ``axes_of``.
    """
    axes = axes_of(candidates, known)
    any_step = np.array([axis.any_step for axis in axes.values()], dtype=bool)
    values = candidates[[*axes]].fillna(0).to_numpy(np.int64)
    families = candidates["family"].to_numpy()
    near = np.zeros(len(candidates), dtype=bool)
    steps_of: dict[str, npt.NDArray[np.int64]] = {}
    for place in candidates.index.get_indexer(pd.Index(names)):
        of_family = families == families[place]
        if families[place] not in steps_of:
            steps_of[families[place]] = np.empty_like(values)
            for axis, column in enumerate(values.T):
                steps_of[families[place]][:, axis] = np.searchsorted(np.unique(column[of_family]), column)
        steps = np.abs(steps_of[families[place]] - steps_of[families[place]][place])
        far = ((steps > 1) & ~any_step).any(axis=1)
        near |= of_family & ((steps > 0).sum(axis=1) == 1) & ~far
    return near
