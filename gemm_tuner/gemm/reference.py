"""The reference for C, and the error bound of a correct result."""

from __future__ import annotations

import math
from typing import Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.operands import Operands
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem

# Products of fp16 and bf16 are exact in fp32; sums round or, on tensor cores, truncate: one ulp each.
ACCUMULATOR_ROUNDOFF = 2.0**-23
# Hopper's tensor cores keep about 14 bits of a sum of fp8 (DeepSeek-V3 Technical Report, 2024, sec. 3.3.2).
FP8_ACCUMULATOR_ROUNDOFF = 2.0**-13
# Failure probability of the probabilistic bound falls as exp(-lambda^2 / 2); 6 leaves 1e-8.
ROUNDING_LAMBDA = 6.0
# Errors of truncation all have the same sign, so they add up. Measured on an H200 (docs/checking.md): 0.05.
TRUNCATION_FACTOR = 0.25
# tf32 has 10 bits of fraction; both factors of a product are cut off.
TF32_PRODUCT_ROUNDOFF = 2 * 2.0**-10
# Scales, alpha, beta C_in, bias and the conversion from int32: at most eight roundings in fp32.
EPILOGUE_ROUNDOFF = 8 * 2.0**-24
# Largest slope of each activation, and its error relative to |x|, from the exp and erf of GPUs.
SLOPES = {"none": 1.0, "relu": 1.0, "gelu": 1.13, "silu": 1.1}
ACTIVATION_ROUNDOFF = {"none": 0.0, "relu": 0.0, "gelu": 1e-6, "silu": 1e-6}
# Of a float64 sum of scaled int8, each scaled operand rounded twice.
REFERENCE_ROUNDOFF = 4 * 2.0**-53
# Half of the distance of two integers.
INTEGER_ERROR = 0.5
# A float64 reference up to this many multiply-adds, for int8 or on the CPU, float32 above.
FLOAT64_LIMIT = 2**37
ALL = slice(None)


def reference(problem: GemmProblem, operands: Operands, rows: slice = ALL, matrices: slice = ALL) -> tuple[Any, Any]:
    """(C before rounding to dtype_c, error bound of a correct C) of some rows of some matrices of the batch.

    Both are (matrices * rows, n), in float64 up to FLOAT64_LIMIT multiply-adds and for int8, else in float32.
    Sums of products of int8 are exact; they stay within int32 for K below 133000.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    wide = problem.flops // 2 <= FLOAT64_LIMIT or operands.a.device.type == "cpu" or problem.sum_dtype == "int32"
    kind = torch.float64 if wide else torch.float32
    a, b = scaled(problem, operands, rows, matrices, kind)
    product = (a @ b).reshape(-1, problem.n)
    spread = (a.square_() @ b.square_()).reshape(-1, problem.n).sqrt_()
    slack = abs(problem.alpha) * sum_error(spread, problem)
    expected = product.mul_(problem.alpha)
    magnitude = expected.abs()
    if operands.c_in is not None:
        added = batched(operands.c_in)[matrices, rows].to(kind).reshape(-1, problem.n) * problem.beta
        expected += added
        magnitude += added.abs_()
    if operands.bias is not None:
        expected += operands.bias.to(kind)
        magnitude += operands.bias.to(kind).abs_()
    slack += EPILOGUE_ROUNDOFF * magnitude
    slack *= SLOPES[problem.activation]
    slack += ACTIVATION_ROUNDOFF[problem.activation] * expected.abs()
    slack.masked_fill_(expected.isinf(), 0.0)  # Inf must be exact
    return activated(problem.activation, expected), slack


def batched(matrix: Any) -> Any:
    """A view with the batch as first axis."""
    return matrix if matrix.dim() == 3 else matrix.unsqueeze(0)


def scaled(problem: GemmProblem, operands: Operands, rows: slice, matrices: slice, kind: Any) -> tuple[Any, Any]:
    """New tensors A, (matrices, rows, k), and B, (matrices, k, n), of type ``kind``, multiplied by their scales."""
    a, b = (batched(matrix) for matrix in operands.logical(problem))
    a, b = a[matrices, rows].to(kind, copy=True), b[matrices].to(kind, copy=True)
    if problem.scaling == "tensor":
        a *= operands.scale_a.to(kind)
        b *= operands.scale_b.to(kind)
    elif problem.scaling == "row_col":
        a *= operands.scale_a[rows, None].to(kind)
        b *= operands.scale_b.to(kind)
    elif problem.scaling == "block":
        a *= stretched(operands.scale_a[rows], problem.k, 1).to(kind)
        b *= stretched(stretched(operands.scale_b, problem.k, 1), problem.n, 0).t().to(kind)
    return a, b


def stretched(scales: Any, extent: int, axis: int) -> Any:
    """Scales repeated along an axis: from one for each SCALE_BLOCK elements to one for each element."""
    return scales.repeat_interleave(SCALE_BLOCK, dim=axis).narrow(axis, 0, extent)


def activated(name: str, x: Any) -> Any:
    """One of ACTIVATIONS. NaN stays NaN, and gelu and silu make NaN of -Inf, as on a GPU.

    By formula: torch's own gelu on the CPU makes NaN of +Inf too, where it uses vector instructions."""
    import torch

    if name == "relu":
        return torch.relu(x)
    if name == "gelu":
        return 0.5 * x * torch.erfc(x * -math.sqrt(0.5))
    if name == "silu":
        return x / (1 + torch.exp(-x))
    return x


def sum_error(spread: Any, problem: GemmProblem) -> Any:
    """Largest error of the sum of the products, element by element, for operands of mean zero.

    u sqrt(k) (6 + sqrt(k) / 4) * spread for the sum of k products, u = 2**-23 for fp32. The 6 stands for rounding:
    for random terms of mean zero the errors of the partial sums, which grow like sqrt(i), add up like
    a random walk (Higham and Mary, "Sharper Probabilistic Backward Error Analysis for Basic Linear
    Algebra Kernels with Random Data", SIAM J. Sci. Comput. 42(5), 2020). The sqrt(k) / 4 stands for the
    truncation of tensor cores (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor
    cores", PeerJ Comput. Sci. 7, 2021), whose size was measured. Sums of fp8 have a larger u.
    In tf32 every product is off by up to 2 * 2**-10 of itself, and these errors are a random walk
    too: 6 * 2 * 2**-10 * spread. Sums of products of int8 have no error; that of the reference, whose operands are
    scaled before they are multiplied, is left: where the sum is 0, it is not.

    spread: the root of the sum of the squared terms, (rows, n).
    """
    if problem.sum_dtype == "int32":
        return ROUNDING_LAMBDA * REFERENCE_ROUNDOFF * spread
    unit = FP8_ACCUMULATOR_ROUNDOFF if DTYPES[problem.dtype_a].is_fp8 else ACCUMULATOR_ROUNDOFF
    root = math.sqrt(problem.k)
    factor = unit * root * (ROUNDING_LAMBDA + TRUNCATION_FACTOR * root)
    if problem.precision == "tf32":
        factor += ROUNDING_LAMBDA * TF32_PRODUCT_ROUNDOFF
    return factor * spread


def error_bound(expected: Any, slack: Any, problem: GemmProblem) -> Any:
    """Largest distance of a correct element of C from ``expected``: ``slack`` plus one rounding to dtype_c, u_c * |C|.

    An int32 must be equal.
    """
    import torch

    if problem.dtype_c == "int32":
        return torch.full_like(expected, INTEGER_ERROR)
    rounding = DTYPES[problem.dtype_c].unit_roundoff
    # Below the least normal fp16 the spacing is absolute: 2**-24.
    smallest = 2.0**-24 if problem.dtype_c == "fp16" else 0.0
    return slack + rounding * (expected.abs() + slack) + smallest
