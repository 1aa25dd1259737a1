"""In place of the kernels in CuTe DSL, which need a GPU: the product that their arguments ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class SortedGemm:
    """C[place] = A[row of the place] @ W[expert of the place]^T, plus the expert's bias, times the place's weight; or
    the activation of that. compiled: what the kernel is compiled with."""

    def __init__(self, compiled: dict[str, Any]) -> None:
        self.activation, self.halves = compiled["activation"], compiled["halves"]

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
            product = self.activated(product) if self.activation else product
            c[some] = (product if router is None else product * router[some, None]).to(c.dtype)

    def activated(self, sums: Any) -> Any:
        import torch

        half = sums.shape[1] // 2
        gate, value = (sums[:, :half], sums[:, half:]) if self.halves else (sums[:, 0::2], sums[:, 1::2])
        if self.activation == "swigluoai":
            gate, value = gate.clamp(max=7), value.clamp(-7, 7) + 1
            return gate * torch.sigmoid(1.702 * gate) * value
        if self.activation == "silu":
            return torch.nn.functional.silu(gate) * value
        kind = {"gelu": "none", "gelu_tanh": "tanh"}[self.activation]
        return torch.nn.functional.gelu(gate, approximate=kind) * value


def with_products(launches: list[Any]) -> list[Any]:
    """The launches, with a product in place of each kernel."""
    return [(symbol, SortedGemm(kernel.values), *rest) for symbol, kernel, *rest in launches]
