"""Both GEMMs of a call in float64, of the quantized operands, with the error bound of a kernel. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.reference import (
    ACCUMULATOR_ROUNDOFF,
    EPILOGUE_ROUNDOFF,
    FP8_ACCUMULATOR_ROUNDOFF,
    ROUNDING_LAMBDA,
    TRUNCATION_FACTOR,
)
from gemm_tuner.moe import activation
from gemm_tuner.moe.launch import DOWN, extent

if TYPE_CHECKING:
    from gemm_tuner.moe.operands import Gemm, MoeOperands
    from gemm_tuner.moe.problem import MoeProblem

# Elements of C that are compared at a time: 128 MiB in float64.
GROUP_ELEMENTS = 2**24


def experts_of_rows(operands: MoeOperands) -> Any:
    import torch

    return torch.from_numpy(operands.ids.reshape(-1).astype("int64")).to(operands.router.device)


def references(
    operands: MoeOperands, part: str, *, wide: bool, activated: bool = False
) -> Iterator[tuple[Any, Any, Any]]:
    """(rows, values in float64, error bound) of each expert of this rank that has rows."""
    for rows, expert, a, w in factors(operands, part, wide=wide):
        yield rows, *bounded(operands, part, rows, expert, a, w, activated=activated)


def factors(operands: MoeOperands, part: str, *, wide: bool) -> Iterator[tuple[Any, int, Any, Any]]:
    """(rows, expert, A of the rows, W) of each expert of this rank that has rows, in float64 with their scales. wide:
    the kernel multiplies in fp32."""
    import torch

    problem, one, flat = operands.problem, operands.gemms[part], experts_of_rows(operands)
    wide_a = one.a.float()  # exact; not all devices gather 8-bit floats
    for expert in torch.unique(flat[flat < problem.E]).tolist():
        rows = torch.nonzero(flat == expert).flatten()
        of_a = rows // extent(problem, part).divisor
        a = wide_a[of_a].double()
        w = dequantised(problem, one, expert, wide=wide) if problem.grouped else one.w[expert].double()
        if one.a_scale is not None:
            scales = one.a_scale if problem.scaling == "tensor" else one.a_scale[of_a]
            a = a * _stretched(scales, a.shape[1], problem.block_shape[1], 1)
        if problem.scaling == "block":
            scales = _stretched(one.w_scale[expert], w.shape[1], problem.block_shape[1], 1)
            w = w * _stretched(scales, w.shape[0], problem.block_shape[0], 0)
        elif one.w_scale is not None and not problem.grouped:
            w = w * (one.w_scale[expert].double().reshape(-1, 1))
        yield rows, expert, a, w


def bias_of(operands: MoeOperands, part: str, expert: int) -> Any:
    """What is added to an expert's sums of products, in float64."""
    bias = operands.gemms[part].bias
    return 0.0 if bias is None else bias[expert].double()


def weighted(operands: MoeOperands, part: str, rows: Any, values: Any) -> Any:
    """Values of the rows with the router's weights, which the second GEMM multiplies by."""
    return values * operands.router[rows].double()[:, None] if part == DOWN else values


def exact(operands: MoeOperands, part: str, *, wide: bool) -> Iterator[tuple[Any, Any]]:
    """(rows, values in float64) as ``references``, of a GEMM without its activation."""
    for rows, expert, a, w in factors(operands, part, wide=wide):
        yield rows, weighted(operands, part, rows, a @ w.t() + bias_of(operands, part, expert))


def in_groups(parts: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The tensors of several experts, rows first, in one of each kind, in the same order: what is compared at a time is
    waited for once. A group has at most GROUP_ELEMENTS of C, or one expert."""
    group: list[tuple[Any, ...]] = []
    elements = 0
    for part in parts:
        size = part[1].numel()
        if group and elements + size > GROUP_ELEMENTS:
            yield _joined(group)
            group, elements = [], 0
        group.append(part)
        elements += size
    if group:
        yield _joined(group)


def _joined(group: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    import torch

    return group[0] if len(group) == 1 else tuple(torch.cat(kind) for kind in zip(*group, strict=True))


def bounded(
    operands: MoeOperands, part: str, rows: Any, expert: int, a: Any, w: Any, *, activated: bool
) -> tuple[Any, Any]:
    """(values in float64, error bound) of the rows of C that one expert makes. a, w: of ``factors``.

    The bound is that of a GEMM (``gemm.reference``): rounding and truncation of a sum of K products, roundings of
    scales, bias and router weight in fp32, and one rounding to the type of C, which follows the activation if C has
    the results of that.
    """
    problem, root = operands.problem, math.sqrt(extent(operands.problem, part).depth)
    sums, bias = a @ w.t(), bias_of(operands, part, expert)
    spread = (a.square() @ w.square().t()).sqrt()
    unit = FP8_ACCUMULATOR_ROUNDOFF if problem.dtype == "fp8_w8a8" else ACCUMULATOR_ROUNDOFF
    slack = unit * root * (ROUNDING_LAMBDA + TRUNCATION_FACTOR * root) * spread
    expected, slack = sums + bias, slack + EPILOGUE_ROUNDOFF * (sums.abs() + abs(bias))
    if activated:
        expected, slack = activation.of_sums(problem, expected, slack)
    expected, slack = (weighted(operands, part, rows, one) for one in (expected, slack))
    rounding = DTYPES[problem.out].unit_roundoff
    return expected, slack + rounding * (expected.abs() + slack) + (2.0**-24 if problem.out == "fp16" else 1e-30)


def dequantised(problem: MoeProblem, gemm: Gemm, expert: int, *, wide: bool) -> Any:
    """w of an expert in float64, of integers in groups: the kernel rounds it to 16 bits before it multiplies."""
    import torch

    bits, group = gemm.w[expert], problem.block_shape[1]
    zero = 8.0 if problem.packed > 1 else 128.0
    if problem.packed > 1:
        bits = torch.stack((bits & 15, bits >> 4), dim=-1).flatten(1)  # an even column is in the low half
    if gemm.zero is not None:
        packed = gemm.zero[expert]
        unpacked = torch.stack((packed & 15, packed >> 4), dim=1).flatten(0, 1) if problem.packed > 1 else packed
        zero = unpacked.float().repeat_interleave(group, dim=1)
    values = (bits.float() - zero) * gemm.w_scale[expert].float().repeat_interleave(group, dim=1)
    return values.double() if wide else values.to(gemm.w_scale.dtype).double()


def _stretched(scales: Any, length: int, group: int, axis: int) -> Any:
    """Scales in float64, one per element of an axis; a single scale stays single."""
    wide = scales.double()
    if wide.dim() == 1 or wide.shape[axis] == 1:
        return wide
    return wide.repeat_interleave(group, dim=axis).narrow(axis, 0, length)
