"""The axes of the GEMM kernels: the values that a space file may give, and the table of all configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.axes import Axis
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device
from gemm_tuner.gemm.config import (
    AMD_NAME_PARTS,
    CHOSEN_BY_LIBRARY,
    CONFIG_FIELDS,
    FAMILY_NAME_PARTS,
    NAME_PARTS,
    UNUSED,
    KernelConfig,
    has_legal_shape,
    legal_shapes,
)
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import exact_mapping

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

AXES = tuple(f for f in CONFIG_FIELDS if f != "family")
AMD_AXES = tuple(field for field, _ in AMD_NAME_PARTS)
# Axes that a space file may leave out; the family then does not use them.
OPTIONAL_AXES = tuple(field for field, _ in FAMILY_NAME_PARTS)
FLAGS = ("WARP_SPECIALIZE", "STREAM_B", "PINGPONG", "SWAP_AB")
FROM_0 = ("waves_per_eu", "matrix_instr_nonkdim", "PROGRAMS_PER_SM", "PACK_BLOCK", *FLAGS)
HIGHEST = 65536  # of any axis
SEARCH_AXES = {
    "GROUP_SIZE_M": Axis(0.5, any_step=True),
    "PROGRAMS_PER_SM": Axis(3.0, any_step=True),
    "EPILOGUE_SUBTILE": Axis(any_step=True),
}


def check_axes(value: Any, where: str, device: Device) -> dict[str, tuple[int, ...]]:
    accepted = AXES if device.target.backend == "hip" else tuple(a for a in AXES if a not in AMD_AXES)
    axes = exact_mapping(value, accepted, where, OPTIONAL_AXES)
    of_library = axes["num_warps"] == [0]
    for axis, values in axes.items():
        _check_axis(axis, values, where, of_library=of_library)
    return {axis: tuple(axes.get(axis, (UNUSED.get(axis),))) for axis in accepted}


def _check_axis(axis: str, values: Any, where: str, *, of_library: bool) -> None:
    chosen = of_library and axis in CHOSEN_BY_LIBRARY
    lowest, highest = 0 if axis in FROM_0 or chosen else 1, 1 if axis in FLAGS else HIGHEST
    shapes = legal_shapes(axis, of_library=of_library)
    accepted = f"a list of different integers from {lowest} to {highest}{', each ' if shapes else ''}{shapes}"
    if not isinstance(values, list) or not values:
        raise UserError(f"{axis} is {'empty' if values == [] else show(values)}", where=where, accepted=accepted)
    seen: set[int] = set()
    for value in values:
        is_legal = type(value) is int and lowest <= value <= highest
        if not is_legal or not has_legal_shape(axis, value, of_library=of_library):
            raise UserError(f"{axis} holds {show(value)}", where=where, accepted=accepted)
        if value in seen:
            raise UserError(f"{axis} holds {show(value)} twice", where=where, accepted=accepted)
        seen.add(value)


def frame(families: Mapping[str, Mapping[str, tuple[int, ...]]]) -> pd.DataFrame:
    """All configurations that the axes span, one per row; the columns are the fields of KernelConfig."""
    import numpy as np
    import pandas as pd  # both slow to import; processes that compile or launch do not need them

    sizes = [math.prod(map(len, axes.values())) for axes in families.values()]
    ends = np.cumsum(sizes)
    # Column by column: a table of one block would be copied for each of them.
    columns: dict[str, npt.NDArray[Any]] = {"family": np.repeat(np.array([*families], dtype=object), sizes)}
    for field in AXES:
        columns[field] = np.zeros(sum(sizes), dtype=np.int64)
        for axes, rows in zip(families.values(), np.split(columns[field], ends[:-1]), strict=True):
            if axes.get(field, (0,)) != (0,):  # zeros take no memory until they are read
                lengths = [*map(len, axes.values())]
                at = [*axes].index(field)
                rows.reshape(math.prod(lengths[:at]), lengths[at], -1)[...] = np.array(axes[field])[:, None]
    return pd.DataFrame(columns, copy=False)


def configs_of(configs: pd.DataFrame) -> list[KernelConfig]:
    """The configurations of all rows, in order."""
    columns = [configs["family"].tolist(), *(configs[axis].tolist() for axis in AXES)]
    return [KernelConfig(*row) for row in zip(*columns, strict=True)]


def names(configs: pd.DataFrame) -> pd.Series:
    """``KernelConfig.name`` of every row, computed on columns."""
    import numpy as np
    import pandas as pd

    on_amd = configs["kpack"].to_numpy() != 0
    parts: list[npt.NDArray[Any]] = [configs["family"].to_numpy()]
    unused = dict.fromkeys(CHOSEN_BY_LIBRARY, 0)
    parts += [name_part(configs[field], short, unused.get(field)) for field, short in NAME_PARTS]
    parts += [name_part(configs[field], short, UNUSED[field]) for field, short in FAMILY_NAME_PARTS]
    if on_amd.any():
        parts += [np.where(on_amd, name_part(configs[field], short), "") for field, short in AMD_NAME_PARTS]
    return pd.Series(["".join(row) for row in zip(*parts, strict=True)], index=configs.index, dtype=object)


def name_part(values: pd.Series, short: str, unused: int | None = None) -> npt.NDArray[np.object_]:
    """What an axis adds to the names, shape (configurations,); "" where its value is ``unused``."""
    import numpy as np
    import pandas as pd

    place, different = pd.factorize(values)
    return np.array(["" if value == unused else f"_{short}{value}" for value in different], dtype=object)[place]
