"""A model of the time of both GEMMs in CuTe DSL, to rank configurations before they are timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gemm_tuner.core.records import Device
from gemm_tuner.moe.cute import FUSED
from gemm_tuner.moe.launch import PARTS, UP, extent
from gemm_tuner.moe.problem import MoeProblem

LAUNCH_US = 2.0
# Share of the data sheet's rates that the library's dense GEMM reaches.
MATRIX_SHARE, MEMORY_SHARE = 0.7, 0.85
# Of a tile: its pipeline fills, and its sums are stored, which pingpong does while the next tile is multiplied.
FILL_US, STORE_US = 0.5, 0.7


def predict_us(c: Any, problem: MoeProblem, counts: npt.NDArray[np.intp], device: Device) -> Any:
    """Predicted time of both GEMMs, microseconds; a fused activation is hidden behind loads and products. c: columns.
    counts: rows of each expert."""
    sm_flops_us = device.tflops(problem.rate_key) * 1e6 / device.num_sms * MATRIX_SHARE
    dram = device.dram_gbps * 1e3 * MEMORY_SHARE  # bytes a microsecond
    clusters = clusters_along_m(c, counts)
    touched = np.count_nonzero(counts)
    total = np.zeros(len(c.BLOCK_SIZE_M))
    for part in PARTS:
        of = extent(problem, part)
        tiles = clusters * c.CLUSTER_M * np.ceil(of.columns / c.BLOCK_SIZE_N)
        rounds = np.ceil(tiles / device.num_sms)  # a program on each SM takes tile after tile
        matrix_us = rounds * 2.0 * c.BLOCK_SIZE_M * c.BLOCK_SIZE_N * of.depth / sm_flops_us
        written = of.columns * np.where((part == UP) & are_fused(c), 0.5, 1.0)
        moved = touched * of.columns * of.depth * 2.0 + 2.0 * problem.rows * (of.depth / of.divisor + written)
        # Where each tile reads weights of its own, those of the last round are read by few SMs.
        uneven = rounds * device.num_sms / np.maximum(tiles, 1)
        memory_us = moved / dram * np.minimum(uneven, 2.0)
        reread = tiles * (c.BLOCK_SIZE_M + c.BLOCK_SIZE_N / c.CLUSTER_M) * of.depth * 2.0
        cache_us = reread / (device.l2_gbps * 1e3)
        busy_us = np.maximum(np.maximum(matrix_us, memory_us), cache_us)
        total += busy_us + rounds * (FILL_US + STORE_US) * (1 - 0.7 * c.PINGPONG) + LAUNCH_US
    return total


def clusters_along_m(c: Any, counts: npt.NDArray[np.intp]) -> Any:
    """Clusters' worth of rows of all experts, each of which starts one of its own."""
    rows = np.asarray(c.BLOCK_SIZE_M * c.CLUSTER_M, dtype=np.int64)
    values, places = np.unique(rows, return_inverse=True)
    return np.array([(-(-counts // block)).sum() for block in values])[places]


def are_fused(c: Any) -> Any:
    """c: columns, of configurations from before there was this axis, too."""
    return np.equal(getattr(c, FUSED, 0), 1)
