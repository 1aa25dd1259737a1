"""The searches that learn nothing: all configurations, and the model's best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemm_tuner.records import Device
from gemm_tuner.search.view import Asked, Proposals, SizeView, not_asked


@dataclass(frozen=True, slots=True)
class Full:
    """Every candidate, in rounds of at most about ``round_size`` over all sizes together.

    Each size gets the same share of what it has left, predicted best first, so that a run that stops early has
    timed the likeliest of every size. While a round is timed the next one can be compiled.
    """

    round_size: int
    name: str = "full"

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        return self._share({size: not_asked(size, size.by_prediction(), {}) for size in sizes})

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        rest = self._share({size: not_asked(size, size.by_prediction(), asked) for size in sizes})
        return {problem: names[:count] for problem, names in rest.items()}

    def _share(self, left: dict[SizeView, list[str]]) -> Proposals:
        total = sum(map(len, left.values()))
        rounds = -(-total // self.round_size)
        return {size.problem: names[: -(-len(names) // rounds)] for size, names in left.items() if names}


@dataclass(frozen=True, slots=True)
class Quick:
    """The model's best ``count`` of every size, in one round."""

    count: int
    name: str = "quick"

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        chosen = {size.problem: not_asked(size, size.by_prediction()[: self.count], {}) for size in sizes}
        return {problem: names for problem, names in chosen.items() if names}

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        return {}
