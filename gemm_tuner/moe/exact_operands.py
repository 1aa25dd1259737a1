"""Operands whose sums of products are exact in any order of summation, so that C can be compared for equality. Needs
torch.

Random operands leave a bound in which a few missing terms hide: of K = 7168 in fp8 dozens. Here elements of A are -1
and 1, and so are those of weights, or integers in groups as they are; scales and router weights are powers of two, and
a bias is an integer. So every term is a multiple of a power of two, and a partial sum has fewer bits than fp32, or than
the 14 that Hopper's tensor cores keep of a sum of fp8 (DeepSeek-V3 Technical Report, 2024, sec. 3.3.2). A sum that lost
a term differs in all of its rows and columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemm_tuner.moe.operands import Gemm, MoeOperands
    from gemm_tuner.moe.problem import MoeProblem

# Of integers in groups: their products with scales still fit fp16, router weight and bias included.
GROUPED_SCALE = {"int4_w4a16": 1 / 8, "int8_w8a16": 1 / 64}
LARGEST_BIAS = 2


def made_exact(operands: MoeOperands, seed: int, *, apart: bool = False) -> MoeOperands:
    """The operands with other values. Weights are written in place, since there may be no memory for both; apart: to
    tensors of their own."""
    import torch

    generator = torch.Generator(device=operands.router.device).manual_seed(seed)
    gemms = {part: _exact(operands.problem, one, generator, apart) for part, one in operands.gemms.items()}
    router = _powers(operands.router, 1.0, generator)
    return replace(operands, gemms=gemms, router=router, placed={}, results={}, by_expert=[])


def _exact(problem: MoeProblem, gemm: Gemm, generator: Any, apart: bool) -> Gemm:
    import torch

    w = torch.empty_like(gemm.w) if apart and not problem.grouped else gemm.w
    for expert in range(0 if problem.grouped else problem.E):
        w[expert] = _signs(w[expert], generator)
    largest = GROUPED_SCALE[problem.dtype] if problem.grouped else 1.0
    bias = gemm.bias
    if bias is not None:
        ends = -LARGEST_BIAS, LARGEST_BIAS + 1
        bias = torch.randint(*ends, bias.shape, generator=generator, device=bias.device).to(bias.dtype)
    scales = (_powers(gemm.a_scale, 1.0, generator), _powers(gemm.w_scale, largest, generator))
    return replace(gemm, w=w, a=_signs(gemm.a, generator), a_scale=scales[0], w_scale=scales[1], bias=bias)


def _signs(like: Any, generator: Any) -> Any:
    """-1 and 1, of the tensor's shape and type."""
    import torch

    bits = torch.randint(0, 2, like.shape, generator=generator, device=like.device, dtype=torch.int8)
    return (2 * bits - 1).float().to(like.dtype)


def _powers(like: Any, largest: float, generator: Any) -> Any:
    """``largest`` and half of it, of the tensor's shape and type; None for None."""
    import torch

    if like is None:
        return None
    halves = torch.randint(0, 2, like.shape, generator=generator, device=like.device)
    return (largest / (1 + halves)).to(like.dtype)


def difference(expected: Any, found: Any) -> tuple[int, int] | None:
    """(row, column) of the first element of ``found`` that is not the exact one; None if all are.

    expected: exact, in float64. Elements that the type of ``found`` does not hold are left out: kernels may round them
    before the last step, or after.
    """
    import torch

    wrong = torch.nonzero((expected.to(found.dtype).double() == expected) & (found.double() != expected))
    return (int(wrong[0, 0]), int(wrong[0, 1])) if len(wrong) else None
