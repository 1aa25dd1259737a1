"""The launch arguments of this package's own fused MoE kernel."""

from __future__ import annotations

from typing import Any

from gemm_tuner.moe.launch import DOWN, Tensors, extent, part_config
from gemm_tuner.moe.problem import MoeProblem


def values(problem: MoeProblem, config: dict[str, Any], part: str, tensors: Tensors) -> dict[str, Any]:
    """By name; ``OUT`` is a type's name, ``W_ROWS`` the rows of all experts' weights."""
    own, of = part_config(config, part), extent(problem, part)
    return {
        "a_ptr": tensors.a, "w_ptr": tensors.w, "c_ptr": tensors.c, "a_scale_ptr": tensors.a_scale,
        "w_scale_ptr": tensors.w_scale, "zero_ptr": tensors.zero, "bias_ptr": tensors.bias,
        "router_ptr": tensors.router, "row_ids_ptr": tensors.row_ids, "experts_ptr": tensors.experts,
        "total_ptr": tensors.total,
        "N": of.columns, "K": of.depth, "rows": problem.rows,
        "BLOCK_SIZE_M": own["BLOCK_SIZE_M"], "BLOCK_SIZE_N": own["BLOCK_SIZE_N"], "BLOCK_SIZE_K": own["BLOCK_SIZE_K"],
        "GROUP_SIZE_M": own["GROUP_SIZE_M"], "PERSISTENT": own["PROGRAMS_PER_SM"] > 0, "SWAP_AB": bool(own["SWAP_AB"]),
        "W_BY_TMA": bool(own["W_BY_TMA"]), "W_ROWS": problem.E * of.columns,
        "EVEN_K": of.depth % own["BLOCK_SIZE_K"] == 0, "TOP_K": of.divisor, "SCALING": problem.scaling,
        "GROUP_N": problem.block_shape[0], "GROUP_K": problem.block_shape[1], "PACKED": problem.packed,
        "HAS_ZERO": problem.zero_points, "HAS_BIAS": problem.bias,
        "OTHER_RANKS": problem.global_E > 0, "SORTED": tensors.row_ids is not None, "BY_ROUTER": part == DOWN,
        "OUT": "fp32" if tensors.wide else problem.out,
    }  # fmt: skip
