"""What the compiler takes of shared memory, and what the rules say that it takes.

``make test`` asks for architectures that differ in how they hold tiles, about one of the families with descriptors
each; ``make test-all`` about every architecture and family, with more configurations.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from work import ARCHS, compile_work, config_for, keeps, refusals, space_of

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.space import space

ROW, COL = Layout.ROW, Layout.COL
BF16 = GemmProblem(4096, 4096, 4096)
FP32 = GemmProblem(4096, 4096, 4096, "fp32", "fp32", "fp32")
FP8 = GemmProblem(4096, 4096, 4096, "fp8_e4m3", "fp8_e4m3", "bf16")
SAMPLE = 6  # configurations of an architecture, family and type; with ``-m grid`` alone
FEW, ONE = 2, 1
DIFFERENT = ("sm_80", "sm_90", "gfx942")
DESCRIPTOR_FAMILIES = ("gemm_persistent", "gemm_split_k", "gemm_stream_k")
IN_TURNS = ("sm_90", "sm_103", "sm_80")  # one family each by default


def counts_of(archs: tuple[str, ...]) -> list[Any]:
    """(architecture, count of configurations), the sample first."""
    assert set(archs) >= set(DIFFERENT)
    few = [
        pytest.param(arch, ONE) if arch in DIFFERENT else pytest.param(arch, FEW, marks=pytest.mark.grid)
        for arch in archs
    ]
    return [*few, *(pytest.param(arch, SAMPLE, marks=pytest.mark.grid) for arch in archs)]


def families_of(archs: tuple[str, ...]) -> list[Any]:
    """(architecture, count, families): one family in turns, then all."""
    found = [
        pytest.param(arch, FEW, (family,), id=f"{arch}-{family}")
        for arch, family in zip(IN_TURNS, DESCRIPTOR_FAMILIES, strict=True)
    ]
    assert set(IN_TURNS) <= set(archs)
    for count in (FEW, SAMPLE):
        every = (pytest.param(a, count, DESCRIPTOR_FAMILIES, id=f"{a}-{count}", marks=pytest.mark.grid) for a in archs)
        found.extend(every)
    return found


@pytest.mark.parametrize(
    "layouts",
    [*(pytest.param(pair, marks=pytest.mark.grid) for pair in ((ROW, ROW), (COL, COL), (ROW, COL))), (COL, ROW)],
)
def test_sizes_divisible_by_8_are_loaded_16_bytes_at_a_time(tmp_path: Path, layouts: tuple[Layout, Layout]) -> None:
    """Only such loads are pipelined through shared memory; it is as large as for sizes divisible by 16."""
    device = space_of("sm_90").device
    config = config_for(device, 64, 64, 64, stages=3)
    sizes = [(1024, 1024, 1024), (1000, 1000, 1000), (1032, 1024, 1024), (1001, 1001, 1001)]
    work = [(GemmProblem(*size, layout_a=layouts[0], layout_b=layouts[1]), config) for size in sizes]
    by_16, by_8, m_by_8, odd = (result.shared_bytes for result in compile_work(device, work, tmp_path))
    assert by_16 == by_8 == m_by_8 == 3 * 2 * 64 * 64 * 2
    assert odd < by_16


def is_cheap(one: KernelConfig, threads: int, element_bytes: int) -> bool:
    """Whether it compiles fast; and each thread loads 4 bytes of each tile, without which there is no pipeline."""
    loads = (one.BLOCK_SIZE_M + one.BLOCK_SIZE_N) * one.BLOCK_SIZE_K / (threads * one.num_warps)
    accumulators = one.BLOCK_SIZE_M * one.BLOCK_SIZE_N / (threads * one.num_warps)
    mfma = max(16, one.matrix_instr_nonkdim)
    narrow = min(one.BLOCK_SIZE_M, one.BLOCK_SIZE_N)
    holds = one.BLOCK_SIZE_M <= 128 and narrow >= mfma
    holds = holds and narrow * one.BLOCK_SIZE_K * element_bytes >= 4 * threads * one.num_warps
    return holds and loads * element_bytes <= 128 and 2 <= accumulators <= 32


def cheap_sample(arch: str, family: str, problem: GemmProblem, count: int) -> list[KernelConfig]:
    """So many configurations that compile fast, or fewer, drawn over the whole range of shared memory."""
    loaded = space_of(arch)
    device, element_bytes = loaded.device, DTYPES[problem.dtype_a].size_bytes
    axes = {**loaded.families[family], "GROUP_SIZE_M": (8,), "SPLIT_K": (2 if family == "gemm_split_k" else 1,)}
    axes |= {axis: axes[axis][:1] for axis in ("NUM_XCDS", "STREAM_B", "kpack") if axis in axes}
    every = space.configs_of(space.frame(replace(loaded, families={family: axes})))

    def tile_bytes(one: KernelConfig) -> int:
        return (one.BLOCK_SIZE_M + one.BLOCK_SIZE_N) * one.BLOCK_SIZE_K * element_bytes * one.num_stages

    huge = replace(device, shared_memory_bytes=2**40, shared_memory_per_sm_bytes=2**40)
    large = [one for one in every if tile_bytes(one) > device.shared_memory_bytes / 4]
    cheap = [one for one in large if is_cheap(one, device.target.warp_size, element_bytes)]
    random.Random(f"{arch}{family}{element_bytes}").shuffle(cheap)
    chosen: list[KernelConfig] = []
    for one in cheap:
        if len(chosen) < count and not refusals(one, problem, huge):
            chosen.append(one)
    return chosen


def disagreements(
    arch: str, rule: str, work: list[tuple[GemmProblem, KernelConfig]], folder: Path, spare: float
) -> list[tuple[str, str, int, int, bool]]:
    """Where the rule's verdict is not the compiler's, at the GPU's limit, or on a GPU that had just enough shared
    memory, or ``spare`` of it."""
    device, wrong = space_of(arch).device, []
    for (problem, config), result in zip(work, compile_work(device, work, folder), strict=True):
        assert result.status == Status.OK, result.message
        needed = result.shared_bytes
        limits = {needed: True, int(spare * needed): False}
        if not spare * needed <= device.shared_memory_bytes < needed:
            limits[device.shared_memory_bytes] = needed <= device.shared_memory_bytes
        for limit, fits in limits.items():
            if keeps(rule, config, problem, replace(device, shared_memory_bytes=limit)) != fits:
                wrong.append((problem.dtype_a, config.name, result.shared_bytes, limit, fits))
    return wrong


@pytest.mark.parametrize(("arch", "count"), counts_of(ARCHS))
def test_the_shared_memory_rules_agree_with_the_compiler(tmp_path: Path, arch: str, count: int) -> None:
    rule = "lds_fits" if arch.startswith("gfx") else "shared_memory_fits"
    work = [(problem, one) for problem in (BF16, FP32) for one in cheap_sample(arch, "gemm_tile", problem, count)]
    assert len(work) > count
    assert disagreements(arch, rule, work, tmp_path, 0.9) == []


@pytest.mark.parametrize(
    ("arch", "count", "families"), families_of(tuple(arch for arch in ARCHS if arch.startswith("sm_")))
)
def test_the_rule_for_descriptors_drops_nothing_that_fits(
    tmp_path: Path, arch: str, count: int, families: tuple[str, ...]
) -> None:
    """And little that it keeps does not: buffers of the epilogue, which it does not count, take a quarter at most."""
    problems = (BF16,) if space_of(arch).device.target.facts.fp8 == "none" else (BF16, FP8)
    work = [
        (problem, one)
        for problem in problems
        for family in families
        for one in cheap_sample(arch, family, problem, count // 2)
    ]
    assert len(work) >= count * len(families) // 3
    assert disagreements(arch, "shared_memory_fits_tiles_and_part", work, tmp_path, 0.75) == []
