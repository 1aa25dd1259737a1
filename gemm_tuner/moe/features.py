"""Features of the search's regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemm_tuner.moe.cute import CUTE_FIELDS, FUSED
from gemm_tuner.moe.launch import OF_DOWN
from gemm_tuner.moe.launcher import AMD_FIELDS, FIELDS, TMA
from gemm_tuner.moe.own import OWN_FIELDS

AXES = (*FIELDS, TMA, *AMD_FIELDS, *OWN_FIELDS, *CUTE_FIELDS, FUSED)
# Of every size, whatever its candidates have: a server's default, or a configuration that the user gave, can have axes
# at one size of a run that no candidate has at another.
COLUMNS = (*AXES, *(OF_DOWN + axis for axis in AXES), "predicted_us")


def features(candidates: Any, families: Sequence[str]) -> Any:
    """COLUMNS, 0 where a candidate has none of the name, and of which family a candidate is; shape (candidates,
    features)."""
    numbers = candidates.reindex(columns=list(COLUMNS)).fillna(0).to_numpy(np.float64)
    of_family = candidates["family"].to_numpy()[:, None] == np.array(list(families[1:]), dtype=object)
    return np.concatenate([np.log2(np.maximum(numbers, 0.5)), of_family.astype(np.float64)], axis=1)
