"""A model of the time of both GEMMs, to rank configurations before they are timed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemm_tuner.core.records import Device
from gemm_tuner.moe import cute_model, routing
from gemm_tuner.moe.cute import CUTE
from gemm_tuner.moe.launch import PARTS, extent
from gemm_tuner.moe.launchers import of_columns, of_problem
from gemm_tuner.moe.problem import MoeProblem

LEAST_ROWS = 64  # rows of a warp group's matrix instruction; a smaller tile takes the same time
LAUNCH_US = 2.0
# Share of the data sheet's rates that good kernels of this kind reach.
MATRIX_SHARE, MEMORY_SHARE = 0.6, 0.8


def live_rows(problem: MoeProblem, block_m: int) -> int:
    """Number of computed rows, including padding, for the first draw of the first routing; without those of other
    ranks, of which blocks end at once."""
    if not of_problem(problem).sorts(problem):
        return problem.rows * block_m
    return routing.padded_rows(first_ids(problem), problem.E, block_m)


def first_ids(problem: MoeProblem) -> routing.Ids:
    return routing.ids(problem.routing[0], problem.M, problem.topk, problem.routed_E, 0)


def draws(problem: MoeProblem) -> list[routing.Ids]:
    """Expert ids of all measured draws: each routing with each seed; those from E on are of other ranks."""
    named = [(one, seed) for seed in range(problem.seeds) for one in problem.routing]
    return [routing.ids(one, problem.M, problem.topk, problem.routed_E, seed) for one, seed in named]


def predict_us(c: Any, problem: MoeProblem, device: Device) -> Any:
    """Predicted time of both GEMMs, microseconds. c: columns of configurations of one family."""
    launcher, arch = of_columns(c), device.target.arch
    if launcher is CUTE:
        return cute_model.predict_us(c, problem, routing.counts(first_ids(problem), problem.E), device)
    rows = np.array([live_rows(problem, int(block)) for block in np.unique(c.BLOCK_SIZE_M)])
    live = rows[np.searchsorted(np.unique(c.BLOCK_SIZE_M), c.BLOCK_SIZE_M)]
    block_k = launcher.launched_k(problem, c.BLOCK_SIZE_K)
    swapped = launcher.swaps(problem, arch, c)
    least = LEAST_ROWS if device.target.facts.by_warp_groups else 16
    computed = np.where(swapped, c.BLOCK_SIZE_M, np.maximum(c.BLOCK_SIZE_M, least))
    activation_bytes = 1 if problem.dtype == "fp8_w8a8" else 2
    tile_bytes = c.num_stages * block_k * (c.BLOCK_SIZE_M * activation_bytes + c.BLOCK_SIZE_N * problem.weight_bytes)
    resident = np.clip(device.shared_memory_per_sm_bytes // np.maximum(tile_bytes, 1), 1, 16 // c.num_warps)
    touched = np.count_nonzero(routing.counts(first_ids(problem), problem.E))
    sm_flops_us = device.tflops(problem.rate_key) * 1e6 / device.num_sms * MATRIX_SHARE
    total = np.zeros(len(c.BLOCK_SIZE_M))
    for part in PARTS:
        of = extent(problem, part)
        blocks = live / c.BLOCK_SIZE_M * np.ceil(of.columns / c.BLOCK_SIZE_N)
        waves = np.ceil(blocks / (device.num_sms * resident))
        # A small tile with few stages does not hide the memory latency.
        hidden = np.minimum(1.0, resident * tile_bytes / (96 * 1024))
        matrix_us = waves * resident * 2 * computed * c.BLOCK_SIZE_N * of.depth / sm_flops_us
        moved = touched * of.columns * of.depth * problem.weight_bytes + 2 * problem.rows * of.columns
        memory_us = moved / (device.dram_gbps * 1e3 * MEMORY_SHARE * hidden)
        reread = blocks * (c.BLOCK_SIZE_M * activation_bytes + c.BLOCK_SIZE_N * problem.weight_bytes) * of.depth
        cache_us = reread / (device.l2_gbps * 1e3)
        steps = np.ceil(of.depth / block_k) * waves * 0.02
        total += np.maximum(np.maximum(matrix_us, memory_us), cache_us) + steps + LAUNCH_US
    return total


def roofline_us(problem: MoeProblem, device: Device) -> float | None:
    rates = dict(device.matmul_tflops)
    if problem.rate_key not in rates:
        return None
    return max(problem.flops / rates[problem.rate_key] / 1e6, problem.bytes_moved / device.dram_gbps / 1e3)
