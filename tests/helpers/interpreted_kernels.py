"""Triton kernels for the interpreter: to be imported where TRITON_INTERPRET is set."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr, WRONG: tl.constexpr = 0, PART: tl.constexpr = 1):
    """WRONG is added; of PART parts of the output only the first is written."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor + WRONG, mask=at < n // PART)


@triton.jit
def accumulate(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total + at, tl.load(total + at, mask=at < n) + tl.load(x + at, mask=at < n), mask=at < n)
