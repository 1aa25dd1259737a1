"""The rules of the kernels in CuTe DSL; other families keep all. As in ``rules``, a docstring is what users see."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemm_tuner.core.records import Device, Problem
from gemm_tuner.gemm.families import gemm_cute
from gemm_tuner.moe.cute import CUTE, FUSABLE
from gemm_tuner.moe.cute_model import are_fused
from gemm_tuner.moe.launch import PARTS, extent
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.rule_of import rule_of

TMA_ELEMENTS = 8  # 16 bytes
# Most columns of a tile whose two halves warp groups take in turns, by its rows; 0 for no such tile.
PINGPONG_COLUMNS = {64: 256, 128: 208, 192: 128, 256: 0}
# Of a thread of the 2 and 3 warp groups that multiply: sums that leave it registers for the rest.
MOST_SUMS, MOST_SUMS_OF_THREE = 208, 128


@rule_of(CUTE)
def orders_alike_along_n(c: Any, p: Problem, d: Device) -> Any:
    """no more tiles along N than a smaller GROUP_SIZE_M takes in one group: the same order of an expert's tiles"""
    assert isinstance(p, MoeProblem)
    values = np.unique(c.GROUP_SIZE_M)
    smaller = np.concatenate([[0], values])[np.searchsorted(values, c.GROUP_SIZE_M)]
    return -(-max(extent(p, part).columns for part in PARTS) // c.BLOCK_SIZE_N) > smaller


@rule_of(CUTE)
def tile_of_the_class(c: Any, p: Problem, d: Device) -> Any:
    """the library's class has no such tile"""
    most: Any = 0
    for rows, columns in PINGPONG_COLUMNS.items():
        most = np.where(rows == c.BLOCK_SIZE_M, columns, most)
    return (c.PINGPONG == 0) | (most >= c.BLOCK_SIZE_N)


@rule_of(CUTE)
def sums_fit_the_registers(c: Any, p: Problem, d: Device) -> Any:
    """a thread's share of the tile exceeds its registers"""
    three = gemm_cute.warp_groups(c) == 3
    return gemm_cute.accumulators(c) <= np.where(three, MOST_SUMS_OF_THREE, MOST_SUMS)


@rule_of(CUTE)
def epilogue_has_the_activation(c: Any, p: Problem, d: Device) -> Any:
    """no epilogue computes it: no gate, another one than silu, gelu, gelu_tanh and swigluoai, or halves with a bias"""
    assert isinstance(p, MoeProblem)
    fusable = p.activation in FUSABLE and not (p.bias and p.gate == "halves")
    return (c.BLOCK_SIZE_M > 0) & (fusable | ~are_fused(c))


@rule_of(CUTE)
def tile_of_a_fused_activation(c: Any, p: Problem, d: Device) -> Any:
    """the library does not use tiles of 192 rows whose warp groups work together for a gated activation"""
    return (c.BLOCK_SIZE_M != 192) | (c.PINGPONG == 1) | ~are_fused(c)


@rule_of(CUTE)
def rows_of_whole_16_bytes(c: Any, p: Problem, d: Device) -> Any:
    """a row of weights, or of a result, is no multiple of 16 bytes, which TMA needs"""
    assert isinstance(p, MoeProblem)
    # A GEMM has as many columns as the other one has depth, or twice as many.
    return all(extent(p, part).depth % TMA_ELEMENTS == 0 for part in PARTS)
