"""Gated activations in float64, with the error of one that a GEMM's epilogue computes from its sums. Needs torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gemm_tuner.gemm.reference import ACTIVATION_ROUNDOFF, EPILOGUE_ROUNDOFF, SLOPES, activated

if TYPE_CHECKING:
    from gemm_tuner.moe.problem import MoeProblem

# A curve of each activation's form: the largest slope, and the error of GPUs' exp and erf relative to |x|.
CURVES = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu", "swigluoai": "silu"}
# gpt-oss: gate and value are clamped to LIMIT, the sigmoid is of SCALE * gate, and 1 is added to the value.
LIMIT, SCALE = 7.0, 1.702


def of_sums(problem: MoeProblem, sums: Any, slack: Any) -> tuple[Any, Any]:
    """(the activation's results, their error bound before they are rounded), [rows, N], of gates and values [rows, 2 N]
    in float64 whose error is at most ``slack``.

    f(gate) errs by the gate's error times f's largest slope, and by the roundings of f. In the product that is
    multiplied by the value and its error, and the value's error by f(gate). Clamping enlarges no error.
    """
    (gate, value), (gate_slack, value_slack) = parted(problem, sums), parted(problem, slack)
    if problem.activation == "swigluoai":
        gate, value = gate.clamp(max=LIMIT), value.clamp(-LIMIT, LIMIT) + 1
    made, curve = curve_of(problem.activation, gate), CURVES[problem.activation]
    made_slack = SLOPES[curve] * gate_slack + ACTIVATION_ROUNDOFF[curve] * gate.abs()
    products = made_slack * (value.abs() + value_slack) + made.abs() * value_slack
    # The sum of value and 1 has terms of up to |sum| + 2.
    return made * value, products + EPILOGUE_ROUNDOFF * made.abs() * (value.abs() + 2)


def parted(problem: MoeProblem, columns: Any) -> tuple[Any, Any]:
    """Gates and values, or what belongs to them."""
    if problem.gate == "pairs":
        return columns[:, 0::2], columns[:, 1::2]
    return columns[:, : problem.N], columns[:, problem.N :]


def curve_of(activation: str, x: Any) -> Any:
    """The activation of a gate, of those in CURVES."""
    import torch

    if activation == "gelu_tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if activation == "swigluoai":
        return activated("silu", SCALE * x) / SCALE
    return activated(activation, x)
