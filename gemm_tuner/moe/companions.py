"""The layers at which a configuration is checked."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from gemm_tuner.moe import launch, launchers, routing, rules
from gemm_tuner.moe.launcher import TMA
from gemm_tuner.moe.own import OWN
from gemm_tuner.moe.problem import UNIFORM, MoeProblem

# The size of a check in the interpreter: number of experts and tokens.
FEW_EXPERTS, FEW_TOKENS = 4, 5
# Number of tokens of the ragged size on a GPU: some experts get several blocks, the last of which has padding.
RAGGED_TOKENS = 37


def check_problems(one: MoeProblem, config: dict[str, Any], *, interpreted: bool) -> tuple[MoeProblem, ...]:
    """The layer (made small for the interpreter), and a ragged one whose extents no tile divides and in which some
    experts get no rows. A recorded routing is of the layer's own experts, and others are drawn uniformly."""
    block = math.lcm(*filter(None, one.block_shape))
    block = math.lcm(block, _step(one, config)) if block > 1 else block
    recorded = routing.files(one.routing)
    other = replace(one, routing=tuple(UNIFORM if text in recorded else text for text in one.routing))
    if not interpreted:
        odd = (block, 3 * block) if block > 1 else (80, 144)
        experts, topk = min(one.E, 16), min(one.topk, 16)
        of_all = 2 * max(experts, topk) if one.global_E else 0
        return one, replace(other, M=RAGGED_TOKENS, E=experts, global_E=of_all, topk=topk, N=odd[0], K=odd[1])
    of_all = 2 * FEW_EXPERTS if one.global_E else 0
    few = replace(other, E=FEW_EXPERTS, global_E=of_all, topk=min(2, one.topk), M=FEW_TOKENS, seeds=1)
    even = _least(2 * max(config["BLOCK_SIZE_N"], config["BLOCK_SIZE_K"]), block, limit=256)
    odd = (block, 3 * block) if block > 1 else (48, 80)
    return replace(few, N=even, K=even), replace(few, M=1, N=odd[0], K=odd[1])


def _step(problem: MoeProblem, config: dict[str, Any]) -> int:
    """What the extents of a layer with scales of blocks or groups must be multiples of besides: TMA reads rows of whole
    16 bytes, and servers' kernels for integers in groups read along K without a mask."""
    parts = [launch.part_config(config, part) for part in launch.PARTS]
    if any(one.get("W_BY_TMA") or one.get(TMA) for one in parts):
        return int(rules.TMA_BYTES / problem.weight_bytes)
    without_mask = problem.grouped and launchers.of_config(problem, config) is not OWN
    return math.lcm(*(one["BLOCK_SIZE_K"] for one in parts)) if without_mask else 1


def _least(size: int, block: int, limit: int) -> int:
    """``size`` rounded up to whole blocks, at most ``limit``."""
    return math.ceil(min(size, max(limit, block)) / block) * block
