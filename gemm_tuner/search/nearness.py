"""Distance between configurations: the first sample consists of distant ones, and the last round tries neighbours of
the fastest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

# Distance per factor of two in an axis; 1 for axes that are not listed.
WEIGHTS = {"GROUP_SIZE_M": 0.5, "num_warps": 1.5, "num_stages": 0.7, "PROGRAMS_PER_SM": 3.0}
# Distance between two families, in units of a factor of two.
FAMILY_DISTANCE = 4.0
# Axes that do not change the tile: a neighbour may differ in one of them by any number of steps.
LAUNCH_ONLY = ("GROUP_SIZE_M", "num_stages", "PROGRAMS_PER_SM", "EPILOGUE_SUBTILE")


def axes_of(candidates: pd.DataFrame) -> list[str]:
    """The columns of a candidate table that are numeric axes."""
    known = candidates.drop(columns=["family", "predicted_us"], errors="ignore")
    return [str(axis) for axis in known.select_dtypes(["number", "bool"]).columns]


def diverse_sample(candidates: pd.DataFrame, count: int, similarity_penalty: float) -> list[str]:
    """``count`` names for the first round that are predicted to be fast and differ from each other.

    Chosen greedily by the smallest log(predicted time) + similarity_penalty * exp(-distance), where distance is that to
    the nearest configuration chosen so far: the weighted sum of |log2 ratio| over all axes.
    """
    axes = axes_of(candidates)
    weights = np.array([WEIGHTS.get(axis, 1.0) for axis in axes])
    position = np.log2(candidates[axes].to_numpy(np.float64) + 1) * weights
    family = candidates["family"].to_numpy()
    log_predicted = np.log(candidates["predicted_us"].to_numpy(np.float64))
    nearest = np.full(len(candidates), np.inf)
    free = np.ones(len(candidates), dtype=bool)
    chosen = []
    for _ in range(min(count, len(candidates))):
        cost = np.where(free, log_predicted + similarity_penalty * np.exp(-nearest), np.inf)
        pick = int(np.argmin(cost))
        chosen.append(str(candidates.index[pick]))
        free[pick] = False
        distance = np.abs(position - position[pick]).sum(axis=1) + FAMILY_DISTANCE * (family != family[pick])
        nearest = np.minimum(nearest, distance)
    return chosen


def neighbours(candidates: pd.DataFrame, name: str) -> npt.NDArray[np.bool_]:
    """A mask, shape (candidates,), of those that differ from ``name`` in exactly one axis by one step.

    The steps of an axis are its values among the family's candidates. An axis of LAUNCH_ONLY may differ by any number
    of steps. Configurations of other families are not neighbours.
    """
    of_family = (candidates["family"] == candidates.at[name, "family"]).to_numpy()
    differing = np.zeros(len(candidates), dtype=np.int64)
    far = np.zeros(len(candidates), dtype=bool)
    for axis in axes_of(candidates):
        values = candidates[axis].to_numpy(np.int64)
        position = np.searchsorted(np.unique(values[of_family]), values)
        steps = np.abs(position - position[candidates.index.get_loc(name)])
        differing += steps > 0
        far |= (steps > 1) if axis not in LAUNCH_ONLY else False
    near: npt.NDArray[np.bool_] = of_family & (differing == 1) & ~far
    return near
