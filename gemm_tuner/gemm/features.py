"""The inputs of the search's regression, which learns from the times of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Device
from gemm_tuner.gemm.families import gemm_cute
from gemm_tuner.gemm.model import Floats, resident_blocks, roofline_us, rows_of_tiles, tiles_of, usable_sms
from gemm_tuner.gemm.problem import GemmProblem, Layout

if TYPE_CHECKING:
    import pandas as pd

LOGARITHMIC = (
    *("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "SPLIT_K", "num_warps", "NUM_XCDS"),
    *("CLUSTER_M", "CLUSTER_N"),
)
PLAIN = (
    *("num_stages", "EPILOGUE_SUBTILE", "PROGRAMS_PER_SM", "WARP_SPECIALIZE", "STREAM_B", "ROW_STEP", "PACK_BLOCK"),
    *("PINGPONG", "SWAP_AB"),
    *("waves_per_eu", "matrix_instr_nonkdim", "kpack"),
)


def features(candidates: pd.DataFrame, problem: GemmProblem, device: Device, families: Sequence[str]) -> Floats:
    """Features of the search's regression, shape (candidates, features), with the same columns for every size of a run.
    families: the kernel families of all sizes of the run."""
    c = gemm_cute.completed(candidates, problem, device)
    m, n, k = problem.m, problem.n, problem.k
    size_a, size_b = DTYPES[problem.dtype_a].size_bytes, DTYPES[problem.dtype_b].size_bytes
    rows, columns = rows_of_tiles(c, problem), np.ceil(n / c.BLOCK_SIZE_N)
    tiles = tiles_of(c, problem)
    blocks_of_k = np.ceil(k / (c.BLOCK_SIZE_K * c.SPLIT_K))
    resident = resident_blocks(c, problem, device)
    slots = usable_sms(c, device) * np.where(c.PROGRAMS_PER_SM > 0, c.PROGRAMS_PER_SM, resident)
    block_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + c.BLOCK_SIZE_N * size_b)
    waves = tiles / slots
    of_size = (
        *(np.log2(m), np.log2(n), np.log2(k), np.log2(problem.flops / problem.bytes_moved)),
        *(float(problem.layout_a == Layout.ROW), float(problem.layout_b == Layout.ROW), float(size_a), float(size_b)),
    )
    parts = [
        *(np.log2(getattr(c, axis)) for axis in LOGARITHMIC),
        *(getattr(c, axis) for axis in PLAIN),
        *((c.family == family) for family in families),
        *(np.log2(tiles), np.log2(waves), waves / np.ceil(waves), np.log2(tiles / device.num_sms), resident),
        *(np.log2(blocks_of_k), np.log2(block_bytes), np.log2(block_bytes * c.num_stages)),
        np.log2(c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (device.target.warp_size * c.num_warps)),
        np.log2(c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (c.BLOCK_SIZE_M + c.BLOCK_SIZE_N)),
        np.log2(rows * c.BLOCK_SIZE_M / m),
        np.log2(columns * c.BLOCK_SIZE_N / n),
        np.log2(c.predicted_us / roofline_us(problem, device)),
        *(np.full(len(candidates), value) for value in of_size),
    ]
    return np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])
