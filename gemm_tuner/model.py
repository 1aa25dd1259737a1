"""A prediction of kernel time from the configuration alone: for ranking where nothing can be timed,
and for saying how long a run will take. It is never written down as a measurement.

    t = waves * blocks_of_k * max(compute, l2, latency) + dram_floor_share + epilogue + split_k

* waves: tiles over (SMs * resident blocks), rounded up: wave quantisation, "Matrix Multiplication
  Background User's Guide", NVIDIA, sec. "Wave Quantization". A fractional last wave counts whole.
* compute: 2 BM BN BK over one SM's share of the matrix rate, divided by how well a tile feeds the
  matrix unit; as in Triton's former ops/matmul_perf_model.py (compute, load and store estimates).
* l2: bytes of one block of A and B over one SM's share of the L2 bandwidth.
* latency: one trip to memory divided by the stages and resident blocks that hide it.
* The whole cannot be faster than the roofline: max(flops / rate, bytes / bandwidth).

Constants that are not in the device's data are below with their reasons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gemm_tuner.dtypes import DTYPES
from gemm_tuner.records import Device, GemmProblem

Floats = npt.NDArray[np.float64]

# One trip to device memory under load; microbenchmarks of A100 and H100 give 0.5 to 0.9 us.
MEMORY_LATENCY_US = 0.8
# Shares of the datasheet rates that kernels reach: 790 of 989 TFLOP/s and 4.3 of 4.8 TB/s were measured
# on an H200 with torch, 2026-10.
RATE_REACHED = 0.8
BANDWIDTH_REACHED = 0.9
# Start, index arithmetic and drain of one block.
BLOCK_OVERHEAD_US = 1.5
# A second kernel of a call starts this much after the first.
SECOND_KERNEL_US = 2.0
# Registers of one thread beside its accumulators: pointers and operands in flight.
REGISTERS_BESIDE = 48


def roofline_us(problem: GemmProblem, device: Device) -> float:
    """The least time the datasheet allows, microseconds: arithmetic or bytes, the larger."""
    compute_us = problem.flops / (device.tflops(problem.rate_key) * 1e6)
    memory_us = problem.bytes_moved / (device.dram_gbps * 1e3)
    return max(compute_us, memory_us)


def resident_blocks(c: Any, problem: GemmProblem, device: Device) -> Floats:
    """Blocks of one configuration that one SM holds at a time, at least 1."""
    size_a, size_b = DTYPES[problem.dtype_a].size_bytes, DTYPES[problem.dtype_b].size_bytes
    ring_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + c.BLOCK_SIZE_N * size_b) * np.maximum(1, c.num_stages - 1)
    threads = device.target.warp_size * c.num_warps
    accumulators = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / threads
    registers = np.minimum(device.max_registers, accumulators + REGISTERS_BESIDE) * threads
    by_shared = device.shared_memory_per_sm_bytes // np.maximum(1, ring_bytes)
    by_registers = device.registers_per_sm // registers
    by_warps = device.max_warps_per_sm // c.num_warps
    resident: Floats = np.maximum(1, np.minimum(np.minimum(by_shared, by_registers), by_warps)).astype(np.float64)
    return resident


def tile_efficiency(c: Any, device: Device) -> Floats:
    """How much of the matrix rate a tile can use: small tiles and few warps leave the unit waiting.

    A warp's matrix instruction reads operands for BM x BN / (BM + BN) multiply-adds an element; at
    an intensity of 64 (a 128 x 128 tile) shared memory keeps up.
    """
    intensity = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (c.BLOCK_SIZE_M + c.BLOCK_SIZE_N)
    accumulators = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (device.target.warp_size * c.num_warps)
    spills = np.where((device.target.backend == "cuda") & (accumulators >= 256), 0.2, 1.0)
    warpgroup = np.where((c.BLOCK_SIZE_M >= 64) & (c.num_warps >= 4), 1.0, 0.6)
    efficiency: Floats = np.minimum(1.0, intensity / 80.0) ** 0.5 * spills * warpgroup
    return efficiency


def predict_us(c: Any, problem: GemmProblem, device: Device) -> Floats:
    """Predicted kernel time of every configuration, microseconds."""
    m, n, k = problem.m, problem.n, problem.k
    size_a, size_b = DTYPES[problem.dtype_a].size_bytes, DTYPES[problem.dtype_b].size_bytes
    tiles = np.ceil(m / c.BLOCK_SIZE_M) * np.ceil(n / c.BLOCK_SIZE_N) * c.SPLIT_K
    resident = resident_blocks(c, problem, device)
    sharing = np.minimum(resident, np.ceil(tiles / device.num_sms))
    waves = np.ceil(tiles / (device.num_sms * sharing))
    blocks_of_k = np.ceil(k / (c.BLOCK_SIZE_K * c.SPLIT_K))

    rate_of_sm = device.tflops(problem.rate_key) * RATE_REACHED * 1e6 / device.num_sms
    flops = 2.0 * c.BLOCK_SIZE_M * c.BLOCK_SIZE_N * c.BLOCK_SIZE_K
    compute_us = flops * sharing / (rate_of_sm * tile_efficiency(c, device))
    block_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + c.BLOCK_SIZE_N * size_b)
    l2_us = block_bytes * sharing / (device.l2_gbps * 1e3 / device.num_sms)
    latency_us = MEMORY_LATENCY_US / np.maximum(1, c.num_stages - 1)
    steady_us = waves * blocks_of_k * np.maximum(np.maximum(compute_us, l2_us), latency_us)

    bandwidth = device.dram_gbps * BANDWIDTH_REACHED * 1e3
    partial_bytes = np.where(c.SPLIT_K > 1, 2.0 * c.SPLIT_K * m * n * 4, 0.0)
    split_k_us = np.where(c.SPLIT_K > 1, SECOND_KERNEL_US + partial_bytes / bandwidth, 0.0)
    floor_us = max(
        problem.flops / (device.tflops(problem.rate_key) * RATE_REACHED * 1e6), problem.bytes_moved / bandwidth
    )
    busy = np.minimum(1.0, tiles / device.num_sms)
    memory_us = problem.bytes_moved / (bandwidth * np.maximum(busy, 0.05) ** 0.5)
    overhead_us = BLOCK_OVERHEAD_US + waves * BLOCK_OVERHEAD_US / 2 + MEMORY_LATENCY_US
    total_us: Floats = np.maximum(np.maximum(steady_us, memory_us), floor_us) + overhead_us + split_k_us
    return total_us
