"""A first choice without timings: predicted fast, and unlike each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from gemm_tuner.core.records import CONFIG_FIELDS

Floats = npt.NDArray[np.float64]

AXES = tuple(field for field in CONFIG_FIELDS if field != "family")
# How much one doubling of an axis sets two configurations apart; 1 where nothing is said.
WEIGHTS = {"GROUP_SIZE_M": 0.5, "num_warps": 1.5, "num_stages": 0.7, "PROGRAMS_PER_SM": 3.0}
# Two families are this many doublings apart.
FAMILY_DISTANCE = 4.0


def spread(candidates: pd.DataFrame, count: int, likeness_cost: float) -> list[str]:
    """``count`` names, one after the other the one of least log(predicted) + likeness_cost * likeness.

    likeness: exp(-distance) to the nearest that was chosen; distance: weighted doublings of all axes.
    """
    weights = np.array([WEIGHTS.get(axis, 1.0) for axis in AXES])
    position = np.log2(candidates[list(AXES)].to_numpy(np.float64) + 1) * weights
    family = candidates["family"].to_numpy()
    log_predicted = np.log(candidates["predicted_us"].to_numpy(np.float64))
    nearest = np.full(len(candidates), np.inf)
    free = np.ones(len(candidates), dtype=bool)
    chosen = []
    for _ in range(min(count, len(candidates))):
        cost = np.where(free, log_predicted + likeness_cost * np.exp(-nearest), np.inf)
        pick = int(np.argmin(cost))
        chosen.append(str(candidates.index[pick]))
        free[pick] = False
        distance = np.abs(position - position[pick]).sum(axis=1) + FAMILY_DISTANCE * (family != family[pick])
        nearest = np.minimum(nearest, distance)
    return chosen
