"""The Triton kernels of the measurement itself. Their time is never counted.

Importing this module needs Triton, but neither torch nor a GPU.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.core.workload import Launch

FLUSH_BLOCK_SIZE = 4096


def _symbol(specialization: Any) -> str:
    return str(specialization.constants["NAME"])


@triton.jit(repr=_symbol)  # type: ignore[untyped-decorator]
def mark(sink_ptr, NAME: tl.constexpr):  # type: ignore[no-untyped-def]
    """Launched before and after a vendor library call, to find the call's kernels, whose names are unknown, in a
    trace."""
    tl.store(sink_ptr, 0)


@triton.jit(repr=_symbol)  # type: ignore[untyped-decorator]
def read_all(  # type: ignore[no-untyped-def]
    buffer_ptr, sink_ptr, NAME: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    """Reads a buffer larger than L2, so that L2 afterwards holds no operands and no modified lines."""
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    total = tl.sum(tl.load(buffer_ptr + offsets))
    if total == 1:  # never true, since the buffer is zeros; prevents removal of the loads
        tl.store(sink_ptr, total)


def support_launches(buffer: Any, sink: Any, flush_blocks: int) -> list[Launch]:
    """The launches of all these kernels. buffer: flush_blocks * 4096 int32 zeros. sink: one int32."""
    return [
        (BEGIN_SYMBOL, mark, (1,), (sink, BEGIN_SYMBOL), {}),
        (END_SYMBOL, mark, (1,), (sink, END_SYMBOL), {}),
        (FLUSH_SYMBOL, read_all, (flush_blocks,), (buffer, sink, FLUSH_SYMBOL, FLUSH_BLOCK_SIZE), {}),
    ]
