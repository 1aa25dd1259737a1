"""Small kernels of the measurement itself. None of them is ever counted as GEMM time.

Importing this module needs Triton, and neither torch nor a GPU.
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
    """Brackets a call whose kernels' names are not known beforehand: those of the vendor library."""
    tl.store(sink_ptr, 0)


@triton.jit(repr=_symbol)  # type: ignore[untyped-decorator]
def read_all(  # type: ignore[no-untyped-def]
    buffer_ptr, sink_ptr, NAME: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    """Reads a buffer larger than L2, which then holds nothing else and nothing dirty."""
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    total = tl.sum(tl.load(buffer_ptr + offsets))
    if total == 1:  # never: the buffer is zeros; keeps the loads alive
        tl.store(sink_ptr, total)


def support_launches(buffer: Any, sink: Any, flush_blocks: int) -> list[Launch]:
    """``buffer`` holds flush_blocks * 4096 int32, ``sink`` one."""
    return [
        (BEGIN_SYMBOL, mark, (1,), (sink, BEGIN_SYMBOL), {}),
        (END_SYMBOL, mark, (1,), (sink, END_SYMBOL), {}),
        (FLUSH_SYMBOL, read_all, (flush_blocks,), (buffer, sink, FLUSH_SYMBOL, FLUSH_BLOCK_SIZE), {}),
    ]
