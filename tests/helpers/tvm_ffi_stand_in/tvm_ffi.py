"""Stands in for apache-tvm-ffi and compiled kernels: a library holds its function's name, and the function multiplies.

It takes what the kernels of gemm_cute take: A (M, K), B (N, K), C (M, N), each after a batch; then what the epilogue
takes, the clusters and the group of tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS: list[str] = []


def load_module(path: str) -> dict[str, Callable[..., None]]:
    name = Path(path).read_text()

    def multiply(a: Any, b: Any, c: Any, *rest: Any) -> None:
        *extras, clusters, group = rest
        assert clusters > 0 and group > 0
        assert a.shape[-1] == b.shape[-1] and c.shape[-2:] == (a.shape[-2], b.shape[-2])
        CALLS.append(name)
        product = a.float() @ b.float().transpose(-1, -2)
        for one in extras:  # alpha and a bias, in this order; the bias is over rows where operands are swapped
            product = product * one if isinstance(one, float) else product + (one[:, None] if "_AB1" in name else one)
        if c.dim() == 3 and a.shape[0] == 1 < c.shape[0]:  # unequal slices: all in the first
            c.zero_()
            c[0] = product[0]
        else:
            c.copy_(product.to(c.dtype))

    return {name: multiply}
