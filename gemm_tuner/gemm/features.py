"""Features of configurations for the search's regression, comparable between sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Device
from gemm_tuner.gemm import model
from gemm_tuner.gemm.problem import GemmProblem, Layout

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

LOGARITHMIC = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "SPLIT_K", "num_warps", "NUM_XCDS")
PLAIN = (
    *("num_stages", "EPILOGUE_SUBTILE", "PROGRAMS_PER_SM", "WARP_SPECIALIZE", "STREAM_B"),
    *("waves_per_eu", "matrix_instr_nonkdim", "kpack"),
)


def families_of(tables: Sequence[pd.DataFrame]) -> tuple[str, ...]:
    """The kernel families of several candidate tables, sorted."""
    return tuple(sorted({str(family) for table in tables for family in table["family"].unique()}))


def matrix(candidates: pd.DataFrame, problem: GemmProblem, device: Device, families: Sequence[str]) -> Floats:
    """Shape (candidates, features); the same columns for every size of a run. families: of all sizes."""
    c = candidates
    m, n, k = problem.m, problem.n, problem.k
    size_a, size_b = DTYPES[problem.dtype_a].size_bytes, DTYPES[problem.dtype_b].size_bytes
    rows, columns = np.ceil(m / c.BLOCK_SIZE_M), np.ceil(n / c.BLOCK_SIZE_N)
    tiles = rows * columns * c.SPLIT_K * problem.batch
    blocks_of_k = np.ceil(k / (c.BLOCK_SIZE_K * c.SPLIT_K))
    resident = model.resident_blocks(c, problem, device)
    slots = device.num_sms * np.where(c.PROGRAMS_PER_SM > 0, c.PROGRAMS_PER_SM, resident)
    block_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + c.BLOCK_SIZE_N * size_b)
    waves = tiles / slots
    of_size = (
        *(np.log2(m), np.log2(n), np.log2(k), np.log2(problem.flops / problem.bytes_moved)),
        *(float(problem.layout_a == Layout.ROW), float(problem.layout_b == Layout.ROW), float(size_a), float(size_b)),
    )
    parts = [
        *(np.log2(c[axis]) for axis in LOGARITHMIC),
        *(c[axis] for axis in PLAIN),
        *((c["family"] == family) for family in families),
        *(np.log2(tiles), np.log2(waves), waves / np.ceil(waves), np.log2(tiles / device.num_sms), resident),
        *(np.log2(blocks_of_k), np.log2(block_bytes), np.log2(block_bytes * c.num_stages)),
        np.log2(c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (device.target.warp_size * c.num_warps)),
        np.log2(c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (c.BLOCK_SIZE_M + c.BLOCK_SIZE_N)),
        np.log2(rows * c.BLOCK_SIZE_M / m),
        np.log2(columns * c.BLOCK_SIZE_N / n),
        np.log2(c.predicted_us / model.roofline_us(problem, device)),
        *(np.full(len(c), value) for value in of_size),
    ]
    return np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])
