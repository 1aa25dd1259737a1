"""The searches that learn nothing: all configurations, and the model's best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemm_tuner.core.records import Device
from gemm_tuner.search.view import Asked, Proposals, SizeView, not_asked


@dataclass(frozen=True, slots=True)
class Full:
    """Every candidate, in rounds of at most about ``round_size`` over all sizes together, the first of ``first_round``.

    The first round is small because nothing can be timed while it is compiled. Each size gets the same share of what
    it has left, predicted best first, so that a run that stops early has timed the likeliest of every size. While a
    round is timed the next one can be compiled.
    """

    round_size: int
    first_round: int
    name: str = "full"

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        begun = any(size.timed_us or size.failed for size in sizes)
        left = {size: not_asked(size, size.by_prediction(), {}) for size in sizes}
        return self._share(left, self.round_size if begun else self.first_round)

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        rest = self._share({size: not_asked(size, size.by_prediction(), asked) for size in sizes}, self.round_size)
        return rest  # what is certain needs no bound

    @staticmethod
    def _share(left: dict[SizeView, list[str]], round_size: int) -> Proposals:
        total = sum(map(len, left.values()))
        rounds = -(-total // round_size)
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
