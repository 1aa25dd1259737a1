"""Distance between configurations: the first sample consists of distant ones, and the last round tries neighbours of
the fastest."""

from __future__ import annotations

from collections.abc import Mapping

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


def neighbours(candidates: pd.DataFrame, name: str, known: Mapping[str, Axis]) -> npt.NDArray[np.bool_]:
    """A mask, shape (candidates,), of those that differ from ``name`` in exactly one axis by one step.

    The steps of an axis are its values among the family's candidates. Configurations of other families are not
    neighbours. known: see ``axes_of``.
    """
    of_family = (candidates["family"] == candidates.at[name, "family"]).to_numpy()
    differing = np.zeros(len(candidates), dtype=np.int64)
    far = np.zeros(len(candidates), dtype=bool)
    for column, axis in axes_of(candidates, known).items():
        values = candidates[column].fillna(0).to_numpy(np.int64)
        position = np.searchsorted(np.unique(values[of_family]), values)
        steps = np.abs(position - position[candidates.index.get_loc(name)])
        differing += steps > 0
        far |= (steps > 1) & (not axis.any_step)
    near: npt.NDArray[np.bool_] = of_family & (differing == 1) & ~far
    return near
