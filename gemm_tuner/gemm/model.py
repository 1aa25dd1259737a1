"""An analytical model of kernel time, to rank configurations before any is timed and to estimate the duration of a
run. A prediction is never reported as a measurement.

    t = norm(waves * (blocks_of_k * block + tile_end), memory, roofline) + start + pack + split_k
    block = norm(compute, l2, latency, pointers)

    norm(a, b, ...) = (a^p + b^p + ...)^(1 / p), a smooth maximum

* waves: tiles over (SMs * resident blocks), rounded up: wave quantisation, "Matrix Multiplication
  Background User's Guide", NVIDIA, sec. "Wave Quantization". Not rounded up for families that distribute the last
  wave over all SMs.
* compute: 2 BM BN BK over one SM's share of the matrix rate, divided by the tile's efficiency
  (``tile_efficiency``); as in Triton's former ops/matmul_perf_model.py. Some families compute with ordinary
  instructions, at the fp32 rate.
* l2: bytes of one block of A and B over one SM's share of the L2 bandwidth.
* latency: one memory latency divided by the number of stages that hide it. An operand that is read in place, whose rows
  start anywhere, has factors of compute, l2 and latency.
* pointers: where rows start at no multiple of 16 bytes, the loads of single elements, or of few, that an SM issues.
* tile_end: the time to store a tile of C that does not overlap with the next tile.
* clusters: run on whole groups of SMs and share loads, so a cluster counts as a wider tile.
* memory: bytes over bandwidth, with those that are read again (``read_again_bytes``); few tiles reach only a part of
  the bandwidth.
* roofline: the larger of operations over rate and bytes over bandwidth, at the shares that kernels reach.
* pack: the preceding kernel that copies operands with unaligned rows.
* start, split_k: start and drain of the kernel; the second kernel or the wait for the last slice, and partial sums.

The constants below were fitted to timings of an H200; docs/model.md says how, and how well the model ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Device
from gemm_tuner.gemm.descriptors import elements_a_load, whole_rows
from gemm_tuner.gemm.families import gemm_cute
from gemm_tuner.gemm.families.family import rates_of, rows_of
from gemm_tuner.gemm.problem import GemmProblem

Floats = npt.NDArray[np.float64]

# Latency of device memory under load; microbenchmarks of A100 and H100 give 0.5 to 0.9 us.
MEMORY_LATENCY_US = 0.85
# Share of the data sheet's bandwidth that kernels reach: 4.3 of 4.8 TB/s (H200, torch, 2026-10).
BANDWIDTH_REACHED = 0.9
# Fitted: share of the rate where wgmma reads its second operand in rows of 32 bytes.
SHORT_ROWS = 0.653
# Fitted: share of the rate without warp-group instructions, which need 64 rows and four warps.
WITHOUT_WARPGROUP = 0.73
# Assumed share of the rate when the accumulators alone exceed the registers.
SPILLING = 0.2
# Fitted: end of a tile without its stores; the share of it that neither another block on the SM nor a persistent loop
# hides; the factor for storing in parts.
TILE_END_US = 0.22
NOT_HIDDEN = 0.7
SUBTILED = 1.35
# Fitted: start and drain of a kernel; the second kernel of a call; the wait for the last slice in one launch.
START_US = 1.0
SECOND_KERNEL_US = 1.3
LAST_SLICE_US = 2.0
# Not fitted: the factor for storing a tile element by element, when rows of C are not aligned for descriptors.
BY_ELEMENTS = 3.0
# Fitted to gemm_tile in benchmarks/landscapes_unaligned (docs/model.md): loads of a thread that an SM issues in a
# microsecond; memory latencies that one block of K takes where a load has less than ASYNCHRONOUS_BYTES, so that none is
# asynchronous (CUDA's cp.async copies 4, 8 or 16), and where it has as many.
LOADS_PER_US = 8800.0
ASYNCHRONOUS_BYTES = 4
LATENCIES_OF_ELEMENTS, LATENCIES_OF_WORDS = 1.21, 0.49
# Fitted to gemm_cute_in_place there: factors of three terms where an operand is read in place and multiplied from
# registers.
IN_PLACE_COMPUTE, IN_PLACE_L2, IN_PLACE_LATENCY = 1.33, 2.4, 1.58
# Fitted: the exponent of norm, and how bandwidth grows with the share of SMs that have a tile.
SHARPNESS = 3.5
FEW_TILES = 0.16
# The share of L2 that keeps an operand from one group of clusters to the next: of 0.1, 0.2 and 0.3 the one with which
# searches over benchmarks/landscapes_cute find the fastest.
KEPT_IN_L2 = 0.2
# Of so many blocks, fewer clusters run at a time than the SMs would hold, since groups of SMs hold no whole number of
# them: on 132 SMs of an H200 30 of four take one wave, 32 two (2026-11-24).
LARGE_CLUSTER, CLUSTERS_LESS = 4, 3
# Guessed: the share of a tile's end that is seen where two warp groups take turns over several tiles.
IN_TURN = 0.25
# Registers of one thread besides its accumulators: pointers and operands in flight.
REGISTERS_BESIDE = 48


def roofline_us(problem: GemmProblem, device: Device) -> float:
    """Lower bound of the time from data sheet rates, microseconds: the larger of arithmetic and memory time."""
    compute_us = problem.flops / (device.tflops(problem.rate_key) * 1e6)
    memory_us = problem.bytes_moved / (device.dram_gbps * 1e3)
    return max(compute_us, memory_us)


def resident_blocks(c: Any, problem: GemmProblem, device: Device) -> Floats:
    """Number of thread blocks of each configuration that are resident on one SM, at least 1. Shape
    (configurations,)."""
    size_a, size_b = DTYPES[problem.dtype_a].size_bytes, DTYPES[problem.dtype_b].size_bytes
    ring_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + c.BLOCK_SIZE_N * size_b) * np.maximum(1, c.num_stages - 1)
    threads = device.target.warp_size * c.num_warps
    accumulators = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / threads
    registers = np.minimum(device.max_registers, accumulators + REGISTERS_BESIDE) * threads
    by_shared = device.shared_memory_per_sm_bytes // np.maximum(1, ring_bytes)
    by_registers = device.registers_per_sm // registers
    by_warps = device.max_warps_per_sm // c.num_warps
    resident: Floats = np.maximum(1, np.minimum(np.minimum(by_shared, by_registers), by_warps)).astype(np.float64)
    return np.where(rows_of(c.family, lambda family: family.takes_whole_sm), 1.0, resident)


def usable_sms(c: Any, device: Device) -> Floats:
    """SMs that clusters can run on: groups of SMs hold no whole number of clusters of four. Shape (configurations,)."""
    size = c.CLUSTER_M * c.CLUSTER_N
    clusters = device.num_sms // size - CLUSTERS_LESS * (size >= LARGE_CLUSTER)
    usable: Floats = np.where(size > 1, np.maximum(1, clusters) * size, device.num_sms).astype(np.float64)
    return usable


def tile_efficiency(c: Any, device: Device) -> Floats:
    """Share of the matrix rate that a tile can reach, shape (configurations,). Small tiles, few warps and operands in
    short rows reach less.

    A tile does BM x BN / (BM + BN) multiply-adds per element that it loads.
    """
    intensity = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (c.BLOCK_SIZE_M + c.BLOCK_SIZE_N)
    accumulators = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (device.target.warp_size * c.num_warps)
    spills = np.where((device.target.backend == "cuda") & (accumulators >= 256), SPILLING, 1.0)
    warpgroup = np.where((c.BLOCK_SIZE_M >= 64) & (c.num_warps >= 4), 1.0, WITHOUT_WARPGROUP)
    full, power = rates_of(c.family, "full_intensity"), rates_of(c.family, "power")
    short = np.where(c.short_rows, SHORT_ROWS, 1.0)
    efficiency: Floats = np.minimum(1.0, (intensity / full) ** power) * spills * warpgroup * short
    return efficiency


def norm(*terms: Any) -> Floats:
    """The p-norm of the terms, p = SHARPNESS: a smooth maximum, in which the second largest term also counts."""
    total: Floats = sum(term**SHARPNESS for term in terms) ** (1 / SHARPNESS)
    return total


def block_us(c: Any, problem: GemmProblem, device: Device, sharing: Any) -> Floats:
    """Time of one block of K on an SM with ``sharing`` resident programs, microseconds."""
    size_a, size_b = DTYPES[problem.dtype_a].size_bytes, DTYPES[problem.dtype_b].size_bytes
    rate = device.tflops(problem.rate_key)
    of_cores = dict(device.matmul_tflops).get("fp32", rate)
    used = np.where(rows_of(c.family, lambda family: family.on_cores), of_cores, rate * tile_efficiency(c, device))
    flops = 2.0 * c.BLOCK_SIZE_M * c.BLOCK_SIZE_N * c.BLOCK_SIZE_K
    compute_us = flops * sharing / (used * rates_of(c.family, "reached") * 1e6 / device.num_sms)
    loaded_m, loaded_n = c.BLOCK_SIZE_M / c.CLUSTER_N, c.BLOCK_SIZE_N / c.CLUSTER_M
    block_bytes = c.BLOCK_SIZE_K * (loaded_m * size_a + loaded_n * size_b)
    l2_us = block_bytes * sharing / (rates_of(c.family, "l2_reuse") * device.l2_gbps * 1e3 / device.num_sms)
    latency_us = MEMORY_LATENCY_US / np.maximum(1, c.num_stages - 1)
    in_place = rows_of(c.family, lambda family: family.in_place)
    others = norm(compute_us, l2_us, latency_us, pointers_us(c, problem, sharing))
    read = norm(IN_PLACE_COMPUTE * compute_us, IN_PLACE_L2 * l2_us, IN_PLACE_LATENCY * latency_us)
    us: Floats = np.where(in_place, read, others)
    return us


def pointers_us(c: Any, problem: GemmProblem, sharing: Any) -> Floats:
    """Time in which an SM loads one block of K through pointers, microseconds; 0 where all rows of A and B start at
    multiples of 16 bytes, and of families that copy those that do not."""
    if all(whole_rows(problem)[:2]):
        return np.zeros(1)
    of_a, of_b = elements_a_load(problem)
    size_a, size_b = DTYPES[problem.dtype_a].size_bytes, DTYPES[problem.dtype_b].size_bytes
    loads = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M / of_a + c.BLOCK_SIZE_N / of_b) * sharing
    by_elements = min(of_a * size_a, of_b * size_b) < ASYNCHRONOUS_BYTES
    latency_us = MEMORY_LATENCY_US * (LATENCIES_OF_ELEMENTS if by_elements else LATENCIES_OF_WORDS)
    us: Floats = np.where(rows_of(c.family, lambda family: family.packs), 0.0, norm(loads / LOADS_PER_US, latency_us))
    return us


def tile_end_us(c: Any, problem: GemmProblem, device: Device, sharing: Any) -> Floats:
    """Time of a tile beyond its blocks of K, microseconds."""
    bandwidth_of_sm = device.dram_gbps * BANDWIDTH_REACHED * 1e3 / device.num_sms
    stored_bytes = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N * DTYPES[problem.dtype_c].size_bytes * sharing
    by_words = gemm_cute.stores_odd_rows(c, problem, device)  # by its warps, which no next tile is multiplied beside
    seen = np.where(sharing > 1, NOT_HIDDEN, 1.0) * np.where((c.PROGRAMS_PER_SM > 0) & ~by_words, NOT_HIDDEN, 1.0)
    takes_turns = (c.PINGPONG == 1) & (tiles_of(c, problem) > usable_sms(c, device))
    seen *= np.where(takes_turns, IN_TURN, 1.0)
    parts = np.where(c.EPILOGUE_SUBTILE > 1, SUBTILED, 1.0)
    packs = rows_of(c.family, lambda family: family.packs and family.language == "triton")
    by_elements = packs & (c.ROW_STEP == 1) & (c.SPLIT_K == 1) & (not whole_rows(problem)[2])
    stores = np.where(by_elements, BY_ELEMENTS, 1.0)
    us: Floats = (stored_bytes / bandwidth_of_sm + TILE_END_US) * seen * parts * stores
    return us


def rows_of_tiles(c: Any, problem: GemmProblem) -> Floats:
    """Number of tiles along M for each configuration."""
    rows: Floats = np.ceil(np.ceil(problem.m / c.ROW_STEP) / c.BLOCK_SIZE_M) * c.ROW_STEP
    return rows


def clusters_of(c: Any, problem: GemmProblem) -> tuple[Floats, Floats]:
    """(clusters along M, along N), each of shape (configurations,)."""
    columns_of_tiles = np.ceil(problem.n / c.BLOCK_SIZE_N)
    return np.ceil(rows_of_tiles(c, problem) / c.CLUSTER_M), np.ceil(columns_of_tiles / c.CLUSTER_N)


def tiles_of(c: Any, problem: GemmProblem) -> Floats:
    """Tiles of all slices and matrices, rounded up to whole clusters."""
    rows, columns = clusters_of(c, problem)
    tiles: Floats = rows * c.CLUSTER_M * columns * c.CLUSTER_N * c.SPLIT_K * problem.batch
    return tiles


def pack_us(c: Any, problem: GemmProblem, device: Device) -> Floats:
    """Time of copying A, B or both before the multiplication, microseconds; 0 where nothing is packed."""
    whole_a, whole_b, _ = whole_rows(problem)
    bytes_a = problem.batch * problem.m * problem.k * DTYPES[problem.dtype_a].size_bytes
    bytes_b = problem.batch * problem.k * problem.n * DTYPES[problem.dtype_b].size_bytes
    in_place = rows_of(c.family, lambda family: family.in_place)
    packs_a = ((c.ROW_STEP > 1) | (not whole_a)) & ~(in_place & (c.SWAP_AB == 0))
    packs_b = (not whole_b) & ~(in_place & (c.SWAP_AB == 1))
    packed_bytes = np.where(packs_a, bytes_a, 0) + np.where(packs_b, bytes_b, 0)
    us = SECOND_KERNEL_US + 2 * packed_bytes / (device.dram_gbps * BANDWIDTH_REACHED * 1e3)
    packs: Floats = np.where(rows_of(c.family, lambda family: family.packs) & (packed_bytes > 0), us, 0.0)
    return packs


def split_k_us(c: Any, problem: GemmProblem, device: Device) -> Floats:
    """Time of adding up slices of K, microseconds; 0 where K is not split. One slice is added up by families that pack
    and are not Triton's, where rows of C are for no descriptor and their kernel does not store them itself."""
    stores_sums = rows_of(c.family, lambda family: family.packs and family.language != "triton")
    stores_sums &= ~gemm_cute.stores_odd_rows(c, problem, device)
    adds_up = (c.SPLIT_K > 1) | (stores_sums & (not whole_rows(problem)[2]))
    in_one_launch = rows_of(c.family, lambda family: family.adds_in_one_launch)
    partial_bytes = 2.0 * c.SPLIT_K * problem.batch * problem.m * problem.n * 4
    partial_us = partial_bytes / (device.dram_gbps * BANDWIDTH_REACHED * 1e3)
    us: Floats = np.where(adds_up, np.where(in_one_launch, LAST_SLICE_US, SECOND_KERNEL_US) + partial_us, 0.0)
    return us


def read_again_bytes(c: Any, problem: GemmProblem, device: Device) -> Floats:
    """Bytes of A and B beyond one reading of each, shape (configurations,).

    In CuTe DSL clusters walk along one side of C, in groups of GROUP_SIZE_M along the other. The operand along the
    first is read anew for each group, as far as L2 does not keep it, of one slice of K after another; not where all
    tiles are computed at once. Of Triton's families 0: they walk along N, and such a term does not improve how they are
    ranked.
    """
    rows, columns = clusters_of(c, problem)
    swapped = np.asarray(c.SWAP_AB) == 1  # then the class's C is transposed
    first, second = np.where(swapped, columns, rows), np.where(swapped, rows, columns)
    of_first, size = gemm_cute.order_of_clusters(c.GROUP_SIZE_M, first, second)
    groups = np.ceil(np.where(of_first, first, second) / size)
    bytes_a = problem.m * problem.k * DTYPES[problem.dtype_a].size_bytes
    bytes_b = problem.k * problem.n * DTYPES[problem.dtype_b].size_bytes
    walked_bytes = np.where(of_first != swapped, bytes_b, bytes_a)
    lost_bytes = np.maximum(0.0, walked_bytes - KEPT_IN_L2 * device.l2_bytes * c.SPLIT_K)
    walks = rows_of(c.family, lambda family: family.language == "cute")
    walks &= tiles_of(c, problem) > usable_sms(c, device)
    return np.where(walks, problem.batch * (groups - 1) * lost_bytes, 0.0)


def predict_us(c: Any, problem: GemmProblem, device: Device) -> Floats:
    """Predicted kernel time of every configuration, microseconds. c: columns by name, arrays or a DataFrame."""
    c = gemm_cute.completed(c, problem, device)
    tiles = tiles_of(c, problem)
    resident = resident_blocks(c, problem, device)
    resident = np.where(c.PROGRAMS_PER_SM > 0, np.minimum(resident, c.PROGRAMS_PER_SM), resident)
    num_sms = usable_sms(c, device)
    sharing = np.minimum(resident, np.ceil(tiles / num_sms))
    full = tiles / (num_sms * sharing)
    waves = np.where(rows_of(c.family, lambda family: family.fills_last_wave), np.maximum(1.0, full), np.ceil(full))
    blocks_of_k = np.ceil(problem.k / (c.BLOCK_SIZE_K * c.SPLIT_K))
    of_a_tile = blocks_of_k * block_us(c, problem, device, sharing) + tile_end_us(c, problem, device, sharing)

    bandwidth = device.dram_gbps * BANDWIDTH_REACHED * 1e3
    busy = np.maximum(0.05, np.minimum(1.0, tiles / device.num_sms))
    read_bytes = problem.bytes_moved + read_again_bytes(c, problem, device)
    memory_us = read_bytes / (bandwidth * busy**FEW_TILES)
    compute_us = problem.flops / (device.tflops(problem.rate_key) * rates_of(c.family, "reached") * 1e6)
    floor_us = np.maximum(compute_us, problem.bytes_moved / bandwidth)
    beside_us = pack_us(c, problem, device) + split_k_us(c, problem, device)
    total_us: Floats = norm(waves * of_a_tile, memory_us, floor_us) + START_US + beside_us
    return total_us
