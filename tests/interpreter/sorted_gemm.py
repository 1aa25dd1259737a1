"""In place of the kernels in CuTe DSL, which need a GPU: the product that their arguments ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class SortedGemm:
    """C[place] = A[row of the place] @ W[expert of the place]^T, plus the expert's bias, times the place's weight."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.multiply

    def multiply(
        self, a: Any, w: Any, c: Any, starts: Any, tokens: Any, bias: Any, router: Any, clusters: int, group: int
    ) -> None:
        rows = a.float() if tokens is None else a.float()[tokens]
        for expert in range(len(w)):
            some = slice(int(starts[expert]), int(starts[expert + 1]))
            product = rows[some] @ w[expert].float().t()
            product = product if bias is None else product + bias[expert].float()
            c[some] = (product if router is None else product * router[some, None]).to(c.dtype)


def with_products(launches: list[Any]) -> list[Any]:
    """The launches, with a product in place of each kernel."""
    return [(symbol, SortedGemm(), *rest) for symbol, _, *rest in launches]
