"""The guided search: predicted fast and varied, then what a regression learned from those, then a polish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gemm_tuner.core.records import Device
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.search.learned import Estimate, estimates
from gemm_tuner.search.neighbours import neighbours
from gemm_tuner.search.spread import spread
from gemm_tuner.search.view import Asked, Proposals, SizeView, not_asked

# Each doubles what was asked of a size: over a quarter of its candidates, and of a small space all, in the end.
MORE_FIRST = 3


@dataclass(frozen=True, slots=True)
class Guided:
    """Three rounds, each a function of the rounds before it. docs/search.md says how the figures were chosen.

    A size of which the first round timed nothing is asked for as many again, up to MORE_FIRST times, before the others.

    Which round it is follows from what is known: the rounds are worked out again from the first on, until one asks for
    something that is not known. So a run that was killed within a round goes on with the rest of that round.

    first_share, learned_share, polish_share: of the candidates, by round; at least ``least`` in the first two.
    likeness_cost: see ``spread``. optimism: by how many spreads of the trees an estimate is lowered.
    leaders: how many have their neighbours tried by the polish. min_gain: expected gain below which it does not try.
    """

    seed: int = 0
    jobs: int = 1
    first_share: float = 0.035
    learned_share: float = 0.025
    polish_share: float = 0.02
    least: int = 16
    likeness_cost: float = 3.0
    optimism: float = 0.5
    leaders: int = 3
    min_gain: float = 0.002
    name: str = "guided"

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        asked: dict[GemmProblem, set[str]] = {size.problem: set() for size in sizes}
        for ask in self._rounds():
            wanted = ask([size.only(asked[size.problem]) for size in sizes], device)
            left = {size.problem: not_asked(size, wanted.get(size.problem, []), {}) for size in sizes}
            if any(left.values()):
                return {problem: names for problem, names in left.items() if names}
            for problem, names in wanted.items():
                asked[problem].update(names)
        return {}

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        if any(size.timed_us for size in sizes):
            likely = [self._order(size, one) for size, one in self._estimated(sizes, device)]
        else:
            likely = [size.by_prediction() for size in sizes]
        rest = {size.problem: not_asked(size, names, asked)[:count] for size, names in zip(sizes, likely, strict=True)}
        return {problem: names for problem, names in rest.items() if names}

    def _rounds(self) -> tuple[Callable[[Sequence[SizeView], Device], Proposals], ...]:
        return self._first, *[self._first_again] * MORE_FIRST, self._learned, self._polish

    def _first(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        return {
            size.problem: spread(size.candidates, self._count(size, self.first_share), self.likeness_cost)
            for size in sizes
        }

    @staticmethod
    def _first_again(sizes: Sequence[SizeView], device: Device) -> Proposals:
        """As many as have failed, predicted best first, of the sizes without a time."""
        untimed = [size for size in sizes if not size.timed_us]
        return {size.problem: not_asked(size, size.by_prediction(), {})[: len(size.failed)] for size in untimed}

    def _learned(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        return {
            size.problem: not_asked(size, self._order(size, one), {})[: self._count(size, self.learned_share)]
            for size, one in self._estimated(sizes, device)
        }

    def _polish(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        chosen = {}
        for size, one in self._estimated(sizes, device):
            near = np.zeros(len(size.candidates), dtype=bool)
            # Equal times go by name: the order in which they came to be known must not count.
            for leader in sorted(size.timed_us, key=lambda name: (size.timed_us[name], name))[: self.leaders]:
                near |= neighbours(size.candidates, leader)
            worth = set(size.candidates.index[near & (one.gain >= self.min_gain)])
            names = [name for name in not_asked(size, self._order(size, one), {}) if name in worth]
            chosen[size.problem] = names[: int(self.polish_share * len(size.candidates))]
        return chosen

    def _count(self, size: SizeView, share: float) -> int:
        return max(self.least, int(share * len(size.candidates)))

    def _estimated(self, sizes: Sequence[SizeView], device: Device) -> list[tuple[SizeView, Estimate]]:
        """Nothing when nothing has a time: then nothing can be learned."""
        if not any(size.timed_us for size in sizes):
            return []
        return list(zip(sizes, estimates(sizes, device, seed=self.seed, jobs=self.jobs), strict=True))

    def _order(self, size: SizeView, one: Estimate) -> list[str]:
        """All names, the most hopeful first."""
        best_first = np.argsort(one.log_us - self.optimism * one.spread, kind="stable")
        return [str(name) for name in size.candidates.index[best_first]]
