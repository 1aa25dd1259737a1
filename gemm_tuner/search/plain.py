"""The searches that do not learn from times: all configurations, and the best by prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemm_tuner.core.records import Device
from gemm_tuner.search.view import Proposals, Requested, SizeView, not_requested


@dataclass(frozen=True, slots=True)
class Full:
    """Times every candidate, in rounds of about ``round_size`` over all sizes; the first round has ``first_round``.

    The first round is smaller because the GPU is idle until it is compiled; later rounds are compiled while the
    previous one is timed. Each size gets the same share of its remaining candidates, predicted best first, so that a
    run that is stopped early has timed the most promising candidates of every size.
    """

    round_size: int
    first_round: int

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        begun = any(size.timed_us or size.failed for size in sizes)
        left = {size: not_requested(size, size.by_prediction(), {}) for size in sizes}
        return self._share(left, self.round_size if begun else self.first_round)

    def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
        rest = self._share(
            {size: not_requested(size, size.by_prediction(), requested) for size in sizes}, self.round_size
        )
        return rest  # all of it will be requested, so ``count`` does not apply

    @staticmethod
    def _share(left: dict[SizeView, list[str]], round_size: int) -> Proposals:
        total = sum(map(len, left.values()))
        rounds = -(-total // round_size)
        return {size.problem: names[: -(-len(names) // rounds)] for size, names in left.items() if names}


@dataclass(frozen=True, slots=True)
class Quick:
    """Times the ``count`` predicted best of every size, in one round."""

    count: int

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        chosen = {size.problem: not_requested(size, size.by_prediction()[: self.count], {}) for size in sizes}
        return {problem: names for problem, names in chosen.items() if names}

    def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
        return {}
