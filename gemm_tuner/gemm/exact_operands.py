"""Operands whose sums of products are exact in any order of summation, so that C can be compared for equality.

Elements of A and B are -1, 0 or 1. In every set of operands, each term k of the sum is assigned to a class (r, c). It
is non-zero in the rows i of A with i % row_period == r and the columns j of B with j % column_period == c. So C[i, j]
is the sum of the terms of one class, each +1 or -1 before scaling, and changes if any single one of them is left out.

* Partial sums are exact: a class has at most ``most_terms`` members, a count that the narrowest accumulator holds.
* C is exact: all but a few members of a class come in pairs whose terms cancel in every element of C. So |C|, with or
  without one term, stays within the range of exact integers of dtype_c.
* Each term is in one class of one set, so that all sets together test every k.

With an activation, every set is used a second time with B, bias and C_in negated, because relu hides negative values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.operands import Operands, torch_dtype, unwritten
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem, Layout
from gemm_tuner.gemm.reference import ACTIVATION_ROUNDOFF, ALL, EPILOGUE_ROUNDOFF, SLOPES, activated, batched, scaled

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

# Number of terms +-1, times scales of up to LARGEST_SCALE, that fp32 (2**24) or int32 sums exactly.
MOST_TERMS = 2**22
# Hopper's tensor cores keep about 14 bits of a sum of fp8 (DeepSeek-V3 Technical Report, 2024, sec. 3.3.2).
MOST_TERMS_FP8 = 2**13
# Every scale is 1 or 2.
LARGEST_SCALE = 4
# Used in place of an alpha that is not 1 and a beta that is not 0.
ALPHA, BETA = 0.5, 2.0
# Bias and C_in are integers of at most this absolute value.
LARGEST_ADDED = 2
# Number of patterns of block scales along K; the two terms of a pair are in blocks of the same pattern.
SCALE_PATTERNS = 4
# Up to this value the error of gelu and silu is far below 1.
LARGEST_ACTIVATED = 2**12


@dataclass(frozen=True, slots=True)
class Cover:
    """How the terms of a problem are assigned to sets and classes.

    sets:                      number of sets, without the negated ones.
    row_period, column_period: distance between the rows of A, and the columns of B, in which a term is non-zero.
    unpaired:                  members of a class, per scale pattern, that need not be paired.
    """

    sets: int
    row_period: int
    column_period: int
    unpaired: int


def cover(problem: GemmProblem) -> Cover:
    """The assignment with the fewest sets and zeros: one set unless M * N is smaller than K / most_terms."""
    classes = math.ceil(problem.k / most_terms(problem))
    rows = min(problem.m, math.isqrt(classes - 1) + 1)
    columns = min(problem.n, math.ceil(classes / rows))
    rows = min(problem.m, math.ceil(classes / columns))
    patterns = SCALE_PATTERNS if problem.scaling == "block" else 1
    return Cover(math.ceil(classes / (rows * columns)), rows, columns, largest_sum(problem) // patterns - 1)


def most_terms(problem: GemmProblem) -> int:
    """Number of terms +-1 whose partial sums are exact in any order. With block scales the tensor cores sum only the
    terms of one block, and the blocks are summed in fp32."""
    narrow = DTYPES[problem.dtype_a].is_fp8 and problem.scaling != "block"
    return MOST_TERMS_FP8 if narrow else MOST_TERMS


def largest_sum(problem: GemmProblem) -> int:
    """Largest |sum of terms| for which C, with and without one of the terms, is exact in dtype_c."""
    roundoff = DTYPES[problem.dtype_c].unit_roundoff or 2.0**-24
    exact = int(1 / roundoff)
    if problem.activation in ("gelu", "silu"):
        exact = min(exact, LARGEST_ACTIVATED)
    scale = LARGEST_SCALE if problem.scaling != "none" else 1
    added = LARGEST_ADDED * (problem.bias + (BETA if problem.reads_c else 0))
    return int(exact - added / (ALPHA if problem.has_alpha else 1)) // scale - 1


def count_sets(problem: GemmProblem) -> int:
    """Number of sets that together test every term, including the negated ones."""
    return cover(problem).sets * (1 if problem.activation == "none" else 2)


def with_exact_factors(problem: GemmProblem) -> GemmProblem:
    """The problem with alpha 1 or ALPHA and beta 0 or BETA; its signature is the same."""
    alpha, beta = ALPHA if problem.has_alpha else 1.0, BETA if problem.reads_c else 0.0
    return replace(problem, alpha=alpha, beta=beta)


def make_exact_operands(problem: GemmProblem, number: int, seed: int, device: str) -> Operands:
    """Operands of set ``number``, below ``count_sets``, of a problem ``with_exact_factors``; ``unwritten`` fills C."""
    import numpy as np
    import torch

    plan = cover(problem)
    draw = np.random.default_rng(seed)
    generator = torch.Generator(device=device).manual_seed(seed)
    m, n, k = problem.m, problem.n, problem.k
    batch = (problem.batch,) if problem.batch > 1 else ()

    def integers(low: int, high: int, shape: tuple[int, ...], kind: Any) -> Any:
        return torch.randint(low, high + 1, shape, generator=generator, device=device, dtype=kind)

    def signs(shape: tuple[int, ...]) -> Any:
        return integers(0, 1, shape, torch.int8).mul_(2).sub_(1)

    patterns = patterns_of_k(problem, draw)
    classes, source, sign = (torch.from_numpy(each).to(device) for each in assign_terms(k, plan, patterns, draw))
    sign = -sign if number >= plan.sets else sign
    within = classes // (plan.row_period * plan.column_period) == number % plan.sets
    row_of, column_of = classes % plan.row_period, classes // plan.row_period % plan.column_period
    a, b = signs((*batch, m, k)).index_select(-1, source), signs((*batch, k, n)).index_select(-2, source)
    if plan.sets * plan.row_period > 1:
        a *= (torch.arange(m, device=device)[:, None] % plan.row_period == row_of) & within
    b *= sign[:, None]
    if plan.column_period > 1:
        b *= torch.arange(n, device=device) % plan.column_period == column_of[:, None]
    factor = -1 if number >= plan.sets else 1
    kind_c, largest = torch_dtype(problem.dtype_c), LARGEST_ADDED
    bias = integers(-largest, largest, (n,), torch.int32).mul_(factor).to(kind_c) if problem.bias else None
    c_in = integers(-largest, largest, (*batch, m, n), torch.int8).mul_(factor).to(kind_c) if problem.reads_c else None
    scale_a, scale_b = exact_scales(problem, torch.from_numpy(patterns).to(device), generator, device)
    return Operands(
        a=stored(a, problem.layout_a).to(torch_dtype(problem.dtype_a)),
        b=stored(b, problem.layout_b).to(torch_dtype(problem.dtype_b)),
        c=unwritten((*batch, m, n), problem.dtype_c, device),
        bias=bias,
        c_in=c_in,
        scale_a=scale_a,
        scale_b=scale_b,
        alpha=problem.alpha,
        beta=problem.beta,
    )


def stored(matrix: Any, layout: Layout) -> Any:
    """A matrix (..., rows, columns) as it is stored in memory with this layout."""
    return (matrix if layout == Layout.ROW else matrix.transpose(-1, -2)).contiguous()


def patterns_of_k(problem: GemmProblem, draw: np.random.Generator) -> Integers:
    """The scale pattern of each block of K, shape (ceil(k / 128),): bit 0 alternates, bit 1 is random. All 0 without
    block scales."""
    import numpy as np

    blocks = -(-problem.k // SCALE_BLOCK)
    if problem.scaling != "block":
        return np.zeros(blocks, dtype=np.int64)
    return np.arange(blocks) % 2 + 2 * draw.integers(0, 2, blocks)


def assign_terms(
    k: int, plan: Cover, patterns: Integers, draw: np.random.Generator
) -> tuple[Integers, Integers, npt.NDArray[np.int8]]:
    """Returns (class, source, sign) of each term, shape (k,) each. The term's column of A is a copy of column
    ``source``, and its row of B a copy of row ``source`` times ``sign``: two terms with one source and opposite signs
    cancel.

    The assignment is random, so that the terms of a slice of K are in many classes and pairs, and the loss of a whole
    slice does not cancel. By numpy, in one thread: torch's threads wait for each other where other processes have the
    cores.
    """
    import numpy as np

    order = draw.permutation(k)
    classes = np.empty_like(order)
    classes[order] = np.arange(k) % (plan.sets * plan.row_period * plan.column_period)
    group = classes * SCALE_PATTERNS + patterns.repeat(SCALE_BLOCK)[:k]
    members = order[group[order].argsort(kind="stable")]
    sorted_groups = group[members]
    place = np.arange(k) - np.searchsorted(sorted_groups, sorted_groups) - plan.unpaired
    (second,) = ((place > 0) & (place % 2 == 1)).nonzero()
    source, sign = np.arange(k), np.ones(k, dtype=np.int8)
    source[members[second]] = members[second - 1]
    sign[members[second]] = -1
    return classes, source, sign


def exact_scales(problem: GemmProblem, patterns: Any, generator: Any, device: str) -> tuple[Any, Any]:
    """Scales of 1 or 2; 2 for a whole tensor.

    A block scale depends only on the row (or column) and on the pattern of the block of K, so that paired terms, which
    are in blocks of one pattern, have the same factor and still cancel. In the first row and column the scales of
    neighbouring blocks differ, so that a wrong block index shows.
    """
    import torch

    found = []
    for rows, _ in problem.scale_shapes:
        start, uses_bit_1 = torch.randint(0, 2, (2, rows, 1), generator=generator, device=device)
        uses_bit_1[0] = 0
        scales = 1.0 + (start ^ (patterns & 1) ^ (patterns >> 1 & uses_bit_1)).float()
        if problem.scaling == "tensor":
            scales.fill_(2.0)
        found.append(scales if problem.scaling == "block" else scales[:, 0].contiguous())
    return (found[0], found[1]) if found else (None, None)


Wrong = tuple[tuple[int, int], str]


def exact_fault(
    actual: Any, problem: GemmProblem, operands: Operands, rows: slice = ALL, matrices: slice = ALL, limits: Any = None
) -> Wrong | None:
    """((row, column), message) of the first element that is not exact; None when all are.

    actual: (matrices * rows, n) in dtype_c; rows are counted from its first row. limits: ``exact_limits`` of these
    rows, if they are known.
    """
    low, high = limits or exact_limits(problem, operands, rows, matrices)
    # True for NaN, too.
    wrong = actual != low if low is high else ~((actual >= low) & (actual <= high))
    if not bool(wrong.any()):
        return None
    row, column = divmod(int(wrong.flatten().byte().argmax()), problem.n)
    want = f"{float(low[row, column]):.9g}"
    if low[row, column] != high[row, column]:
        want += f" to {float(high[row, column]):.9g}"
    count = int(wrong.sum())
    message = f"is {float(actual[row, column]):.9g}, exactly {want}; {count} of {wrong.numel()} elements are wrong"
    return (row, column), message + suspect(actual, *before_activation(problem, operands, rows, matrices), problem)


def exact_limits(problem: GemmProblem, operands: Operands, rows: slice = ALL, matrices: slice = ALL) -> tuple[Any, Any]:
    """``exact_range`` of some rows of some matrices of the batch, (matrices * rows, n) each."""
    return exact_range(before_activation(problem, operands, rows, matrices)[2], problem)


def before_activation(problem: GemmProblem, operands: Operands, rows: slice, matrices: slice) -> tuple[Any, Any, Any]:
    """(A, B, C before the activation) in fp32, with scales multiplied into A and B; C is (matrices * rows, n).

    fp32 suffices because every partial sum is exact in it.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = scaled(problem, operands, rows, matrices, torch.float32)
    x = (a @ b).reshape(-1, problem.n).mul_(problem.alpha)
    if operands.c_in is not None:
        x += batched(operands.c_in)[matrices, rows].float().reshape(-1, problem.n) * problem.beta
    if operands.bias is not None:
        x += operands.bias.float()
    return a, b, x


def exact_range(x: Any, problem: GemmProblem) -> tuple[Any, Any]:
    """(smallest, largest) correct C in dtype_c. x: C before the activation. They are one tensor but for gelu and
    silu, where they differ by the errors of a GPU's exp and erf."""
    kind = torch_dtype(problem.dtype_c)
    if problem.activation in ("none", "relu"):
        exact = activated(problem.activation, x).to(kind)
        return exact, exact
    wide = x.double()
    slack = (SLOPES[problem.activation] * EPILOGUE_ROUNDOFF + ACTIVATION_ROUNDOFF[problem.activation]) * wide.abs()
    y = activated(problem.activation, wide)
    return (y - slack).to(kind), (y + slack).to(kind)


def suspect(actual: Any, a: Any, b: Any, x: Any, problem: GemmProblem) -> str:
    """A message that names the k whose product is missing or counted twice, if a single one explains the error; else
    "".

    For a pair of cancelling terms, one missing gives the same error as the other counted twice, so both are named.
    """
    import torch

    if problem.activation != "none":
        return ""
    error = (actual.float() - x).reshape(len(a), -1, problem.n)
    if not bool(error.isfinite().all()):
        return ""
    score = (a * (error @ b.transpose(-1, -2))).sum((0, 1)) * problem.alpha
    found = []
    for sign, words in ((-1, "missing"), (1, "counted twice")):
        likely = (sign * score == (sign * score).max()).nonzero().flatten()
        k = int(likely[0])
        if len(likely) == 1 and torch.equal(error, sign * problem.alpha * a[:, :, k, None] * b[:, k, None, :]):
            found.append(f"k = {k} were {words}")
    return ": as if the product of " + " or of ".join(found) if found else ""
