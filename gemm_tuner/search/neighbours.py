"""The configurations next to a given one, for the last round of the guided search."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from gemm_tuner.search.spread import axes_of

# Axes that leave the tile as it is: a neighbour may have any value of one of them.
LAUNCH_ONLY = ("GROUP_SIZE_M", "num_stages", "PROGRAMS_PER_SM", "EPILOGUE_SUBTILE")


def neighbours(candidates: pd.DataFrame, name: str) -> npt.NDArray[np.bool_]:
    """Mask, shape (candidates,): those that differ from ``name`` in exactly one axis, by one step of its values.

    The values of an axis are those among the family's candidates. An axis of LAUNCH_ONLY may differ by any number of
    steps. Configurations of other families are no neighbours.
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
