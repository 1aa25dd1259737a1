"""A whole fused MoE layer in float64."""

from __future__ import annotations

from typing import Any

from gemm_tuner.moe.problem import MoeProblem


def operator_of(one: MoeProblem, given: Any, tokens: Any) -> Any:
    """The result of a whole call in float64. given: operands."""
    import torch

    from gemm_tuner.moe.launch import DOWN, UP

    x, routed = tokens.double(), given.router.double().reshape(one.M, one.topk)
    weights = {part: _weights(one, given.gemms[part]) for part in (UP, DOWN)}
    expected = torch.zeros(one.M, one.K, dtype=torch.float64, device=x.device)
    for token in range(one.M):
        for place, expert in enumerate(given.ids[token].tolist()):
            if expert >= one.E:  # of another rank
                continue
            hidden = x[token] @ weights[UP][expert].T
            hidden = hidden + (given.gemms[UP].bias[expert].double() if one.bias else 0)
            hidden = _activated(one, hidden)
            if one.scaling == "tensor":  # given, and not made to hold the largest
                limit = 448 * float(given.gemms[DOWN].a_scale)
                hidden = hidden.clamp(-limit, limit)
            made = weights[DOWN][expert] @ hidden
            made = made + (given.gemms[DOWN].bias[expert].double() if one.bias else 0)
            expected[token] += routed[token, place] * made
    assert bool(expected.abs().max() > 0)
    return expected


def _weights(problem: MoeProblem, gemm: Any) -> Any:
    """In float64."""
    import torch

    from gemm_tuner.moe.reference import dequantised

    if problem.grouped:
        return torch.stack([dequantised(problem, gemm, expert, wide=True) for expert in range(problem.E)])
    return gemm.w.double() * _scale(problem, gemm)


def _scale(problem: MoeProblem, gemm: Any) -> Any:
    if problem.scaling == "block":
        rows, columns = problem.block_shape
        return gemm.w_scale.double().repeat_interleave(rows, 1).repeat_interleave(columns, 2)
    return 1.0 if gemm.w_scale is None else gemm.w_scale.double().reshape(problem.E, -1, 1)


def _activated(problem: MoeProblem, hidden: Any) -> Any:
    import torch

    if problem.activation == "relu2_no_mul":
        return torch.relu(hidden).square()
    if problem.activation == "swigluoai":
        gate, value = hidden[0::2].clamp(max=7), hidden[1::2].clamp(-7, 7)
        return gate * torch.sigmoid(1.702 * gate) * (value + 1)
    gate, value = hidden[: problem.N], hidden[problem.N :]
    if problem.activation in ("gelu", "gelu_tanh"):
        approximate = "tanh" if problem.activation == "gelu_tanh" else "none"
        return torch.nn.functional.gelu(gate, approximate=approximate) * value
    return gate * torch.sigmoid(gate) * value
