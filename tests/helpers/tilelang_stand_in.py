"""A factory of kernels as TileLang's: what it returns says its arguments and outputs, and computes on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

# The time of a call by block_M, milliseconds: what ``do_bench`` of these tests says.
MS = {16: 3.0, 32: 1.0, 64: 2.0, 128: 4.0}


@dataclass
class Param:
    shape: Sequence[Any]
    dtype: str = "float32"

    def torch_dtype(self) -> torch.dtype:
        found = getattr(torch, self.dtype)
        assert isinstance(found, torch.dtype)
        return found


@dataclass
class MatmulKernel:
    """C = A @ B. made: C is made by the kernel and returned, else it is its third argument."""

    params: list[Param]
    block: int
    made: bool
    offset: float = 0.0
    seen: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def out_idx(self) -> list[int] | None:
        return [2] if self.made else None

    def get_kernel_source(self) -> str:
        return f"// block_M = {self.block}\n"

    def __call__(self, *args: torch.Tensor) -> torch.Tensor | None:
        assert len(args) == (2 if self.made else 3)
        self.seen.append(tuple(one.data_ptr() for one in args))
        TIMED.append(MS[self.block])
        result = args[0] @ args[1] + self.offset
        if self.made:
            return result
        args[2].copy_(result)
        return None


# What was called, by its time.
TIMED: list[float] = []


def do_bench(call: Any, quantiles: Sequence[float]) -> list[float]:
    TIMED.clear()
    call()
    return [TIMED[-1] if TIMED else 1.0] * len(quantiles)  # the same for what calls no kernel


BUILT: list[MatmulKernel] = []


def matmul(
    m: int, n: int, k: int, block_M: int = 128, made: bool = True, offset: float = 0.0, dtype: str = "float32"
) -> MatmulKernel:
    if block_M > m:
        raise ValueError(f"block_M {block_M} is above {m}")
    kernel = MatmulKernel([Param((m, k), dtype), Param((k, n), dtype), Param((m, n), dtype)], block_M, made, offset)
    BUILT.append(kernel)
    return kernel
