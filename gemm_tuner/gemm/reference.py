"""The reference result and the error bound of a correct result."""

from __future__ import annotations

import math
from typing import Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.operands import Operands
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem

# Products of fp16 and bf16 are exact in fp32; each addition rounds or, on tensor cores, truncates: at most one ulp.
ACCUMULATOR_ROUNDOFF = 2.0**-23
# Hopper's tensor cores keep about 14 bits of a sum of fp8 (DeepSeek-V3 Technical Report, 2024, sec. 3.3.2).
FP8_ACCUMULATOR_ROUNDOFF = 2.0**-13
# The probabilistic bound fails with a probability of about exp(-lambda^2 / 2); 6 gives 1e-8.
ROUNDING_LAMBDA = 6.0
# Truncation errors all have the same sign, so they add up. Measured on an H200: 0.05 (docs/checking.md).
TRUNCATION_FACTOR = 0.25
# tf32 has 10 fraction bits; both factors of a product are truncated.
TF32_PRODUCT_ROUNDOFF = 2 * 2.0**-10
# Scales, alpha, beta C_in, bias and the conversion from int32: at most eight roundings in fp32.
EPILOGUE_ROUNDOFF = 8 * 2.0**-24
# Largest slope of each activation, and its error relative to |x|, from the exp and erf of GPUs.
SLOPES = {"none": 1.0, "relu": 1.0, "gelu": 1.13, "silu": 1.1}
ACTIVATION_ROUNDOFF = {"none": 0.0, "relu": 0.0, "gelu": 1e-6, "silu": 1e-6}
# For a float64 sum of scaled int8, each of whose operands is rounded twice.
REFERENCE_ROUNDOFF = 4 * 2.0**-53
# Half the distance between two integers.
INTEGER_ERROR = 0.5
# The reference is computed in float64 up to this many multiply-adds, for int8 and on the CPU; in float32 above.
FLOAT64_LIMIT = 2**37
ALL = slice(None)


def reference(problem: GemmProblem, operands: Operands, rows: slice = ALL, matrices: slice = ALL) -> tuple[Any, Any]:
    """Returns (C before rounding to dtype_c, error bound without that rounding) for some rows of some matrices of the
    batch.

    Both are (matrices * rows, n), in float64 up to FLOAT64_LIMIT multiply-adds and for int8, else in float32.
    Sums of int8 products are exact; they stay within int32 for K below 133000.
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
    slack.masked_fill_(expected.isinf(), 0.0)  # an infinity must be equal
    return activated(problem.activation, expected), slack


def batched(matrix: Any) -> Any:
    """A view with the batch as the first axis."""
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
    """Scales repeated along an axis: from one per SCALE_BLOCK elements to one per element."""
    return scales.repeat_interleave(SCALE_BLOCK, dim=axis).narrow(axis, 0, extent)


def activated(name: str, x: Any) -> Any:
    """Applies one of ACTIVATIONS. NaN stays NaN, and gelu and silu turn -Inf into NaN, as on a GPU.

    Written out because torch's gelu on the CPU also turns +Inf into NaN when it uses vector instructions.
    """
    import torch

    if name == "relu":
        return torch.relu(x)
    if name == "gelu":
        return 0.5 * x * torch.erfc(x * -math.sqrt(0.5))
    if name == "silu":
        return x / (1 + torch.exp(-x))
    return x


def sum_error(spread: Any, problem: GemmProblem) -> Any:
    """Bound of the error of the sums of products, per element, for operands of mean zero.

    u sqrt(k) (6 + sqrt(k) / 4) * spread for a sum of k products; u = 2**-23 for fp32, larger for fp8.

    * 6 is for rounding: with random terms of mean zero, the errors of the partial sums, which grow like sqrt(i), add up
      like a random walk (Higham and Mary, "Sharper Probabilistic Backward Error Analysis for Basic Linear Algebra
      Kernels with Random Data", SIAM J. Sci. Comput. 42(5), 2020).
    * sqrt(k) / 4 is for the truncation of tensor cores (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of
      NVIDIA tensor cores", PeerJ Comput. Sci. 7, 2021); its size was measured.
    * tf32: every product has a relative error of up to 2 * 2**-10, again a random walk: 6 * 2 * 2**-10 * spread is
      added.
    * int8: the kernel's sums are exact. What remains is the error of the reference, which scales the operands before it
      multiplies, so that a sum of exactly 0 may come out as not quite 0.

    spread: square root of the sum of the squared terms, (rows, n).
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
    """Largest distance between a correct element of C and ``expected``: ``slack`` plus one rounding to dtype_c, u_c *
    |C|.

    int32 must be equal.
    """
    import torch

    if problem.dtype_c == "int32":
        return torch.full_like(expected, INTEGER_ERROR)
    rounding = DTYPES[problem.dtype_c].unit_roundoff
    # Below the smallest normal fp16 number the spacing is constant: 2**-24.
    smallest = 2.0**-24 if problem.dtype_c == "fp16" else 0.0
    return slack + rounding * (expected.abs() + slack) + smallest
