"""The configurations next to one: what a polish around the leaders tries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from gemm_tuner.search.spread import AXES

# Knobs of the launch and the loop, which keep the tile: a neighbour may have any value of one of them.
LAUNCH_ONLY = ("GROUP_SIZE_M", "num_stages", "PROGRAMS_PER_SM", "EPILOGUE_SUBTILE")


def neighbours(candidates: pd.DataFrame, name: str) -> npt.NDArray[np.bool_]:
    """Which candidates differ from the named one in one axis: by one step, or by any in a launch-only one.

    A step goes to the next value that the axis has among the family's candidates. Other families are no neighbours.
    """
    of_family = (candidates["family"] == candidates.at[name, "family"]).to_numpy()
    differing = np.zeros(len(candidates), dtype=np.int64)
    far = np.zeros(len(candidates), dtype=bool)
    for axis in AXES:
        values = candidates[axis].to_numpy(np.int64)
        position = np.searchsorted(np.unique(values[of_family]), values)
        steps = np.abs(position - position[candidates.index.get_loc(name)])
        differing += steps > 0
        far |= (steps > 1) if axis not in LAUNCH_ONLY else False
    near: npt.NDArray[np.bool_] = of_family & (differing == 1) & ~far
    return near
