"""The vendor library's GEMM through torch, the baseline of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.operands import Operands, torch_dtype
from gemm_tuner.gemm.problem import GemmProblem, Layout

Call = Callable[[], Any]
OCP_FP8 = ("fp8_e4m3", "fp8_e5m2")


def vendor_call(problem: GemmProblem, operands: Operands) -> Call | None:
    """A function without arguments that computes the same GEMM into operands.c; None if torch has no call for it.

    Steps that torch's call has no argument for follow as separate in-place kernels on C: C_in of fp8, the bias if there
    is also a C_in, and every activation. fp8 is summed with the precision of the tensor cores, as in Triton's kernels.
    """
    if problem.dtype_a == "int8":
        product = integer_product(problem, operands)
    elif DTYPES[problem.dtype_a].is_fp8:
        product = fp8_product(problem, operands)
    elif problem.dtype_a == problem.dtype_c:
        product = float_product(problem, operands)
    else:
        product = None
    if product is None or problem.activation == "none":
        return product
    return followed_by(product, activation(problem.activation, operands.c))


def followed_by(first: Call, second: Call) -> Call:
    def both() -> None:
        first()
        second()

    return both


def activation(name: str, tensor: Any) -> Call:
    """A function that applies one of ACTIVATIONS, except none, in place."""
    import torch

    if name == "gelu":
        return lambda: torch.ops.aten.gelu_(tensor)
    if name == "silu":
        return lambda: torch.nn.functional.silu(tensor, inplace=True)
    return tensor.relu_  # type: ignore[no-any-return]


def float_product(problem: GemmProblem, operands: Operands) -> Call:
    """alpha A B + beta C_in + bias for operands of one floating-point type."""
    import torch

    a, b = operands.logical(problem)
    c, alpha, bias = operands.c, operands.alpha, operands.bias
    batched = problem.batch > 1
    add_product = torch.baddbmm if batched else torch.addmm

    if operands.c_in is not None:
        call: Call = lambda: add_product(operands.c_in, a, b, beta=operands.beta, alpha=alpha, out=c)  # noqa: E731
        call = followed_by(call, lambda: c.add_(bias)) if problem.bias else call
    elif problem.bias:
        call = lambda: add_product(bias, a, b, alpha=alpha, out=c)  # noqa: E731
    elif problem.has_alpha:
        call = lambda: add_product(c, a, b, beta=0, alpha=alpha, out=c)  # noqa: E731
    else:
        call = lambda: (torch.bmm if batched else torch.mm)(a, b, out=c)  # noqa: E731
    return with_precision(problem.precision, call) if problem.dtype_a == "fp32" else call


def with_precision(precision: str, call: Call) -> Call:
    """The call, which first sets torch's fp32 precision; the setting persists after the call."""
    import torch

    def call_in_precision() -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        call()

    return call_in_precision


def fp8_product(problem: GemmProblem, operands: Operands) -> Call | None:
    """torch._scaled_mm; None unless types are OCP and not both e5m2, A is row-major, B column-major, and K and N are
    multiples of 16."""
    import torch

    layouts = (problem.layout_a, problem.layout_b)
    types = (problem.dtype_a, problem.dtype_b)
    fits = problem.batch == 1 and problem.k % 16 == 0 and problem.n % 16 == 0 and layouts == (Layout.ROW, Layout.COL)
    known = all(dtype in OCP_FP8 for dtype in types) and types != ("fp8_e5m2", "fp8_e5m2")
    if (
        not (fits and known)
        or problem.scaling == "block"
        or (problem.scaling == "row_col" and problem.dtype_c != "bf16")
    ):
        return None
    a, b = operands.logical(problem)
    c, bias, kind = operands.c, operands.bias, torch_dtype(problem.dtype_c)
    scale_a, scale_b = fp8_scales(problem, operands)
    fused = bias if problem.dtype_c != "fp32" else None  # the library refuses a bias with fp32

    def product() -> None:
        torch._scaled_mm(a, b, scale_a, scale_b, bias=fused, out_dtype=kind, use_fast_accum=True, out=c)

    call: Call = product
    if bias is not None and fused is None:
        call = followed_by(call, lambda: c.add_(bias))
    return followed_by(call, lambda: c.add_(operands.c_in, alpha=operands.beta)) if problem.reads_c else call


def fp8_scales(problem: GemmProblem, operands: Operands) -> tuple[Any, Any]:
    """The scales in the shapes of the library: (1,) each, or (m, 1) and (1, n). Alpha is multiplied into that of A."""
    import torch

    if problem.scaling == "none":
        one = torch.ones(1, dtype=torch.float32, device=operands.a.device)
        return one * operands.alpha, one
    scale_a, scale_b = operands.scale_a * operands.alpha, operands.scale_b
    return (scale_a, scale_b) if problem.scaling == "tensor" else (scale_a.view(-1, 1), scale_b.view(1, -1))


def integer_product(problem: GemmProblem, operands: Operands) -> Call | None:
    """torch._int_mm; None unless C is int32, M is above 16, and K and N are multiples of 8."""
    import torch

    fits = problem.batch == 1 and problem.m > 16 and problem.k % 8 == 0 and problem.n % 8 == 0
    if problem.dtype_c != "int32" or not fits:
        return None
    a, b = operands.logical(problem)
    c = operands.c
    call: Call = lambda: torch._int_mm(a, b, out=c)  # noqa: E731
    return followed_by(call, lambda: c.add_(operands.bias)) if problem.bias else call
