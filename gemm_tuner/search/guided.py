"""The guided search: a diverse sample of the predicted best, then the best by a regression, then neighbours of the
fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gemm_tuner.core.records import Device
from gemm_tuner.core.workload import workload_of
from gemm_tuner.search.compile_work import CompileWork, worth_ahead
from gemm_tuner.search.learned import Estimate, Floats, estimates, features_of
from gemm_tuner.search.nearness import diverse_sample, neighbours
from gemm_tuner.search.remembered import Remembered, content
from gemm_tuner.search.staged import Round, next_step
from gemm_tuner.search.view import Proposals, Requested, SizeView, not_requested

# Extra first rounds of a size without any time. Each doubles the number of requested configurations.
MORE_FIRST = 3
# What is asked for again: the estimates of the learned round and the proposals of four rounds, also for the views of up
# to four servers, which are searched one after another.
ESTIMATES, PROPOSALS = 5, 20


@dataclass(frozen=True, slots=True)
class Guided:
    """Three rounds, each a function of the results of earlier rounds. docs/search.md says how the constants were
    chosen.

    A size without any time after the first round (all failed) gets up to MORE_FIRST extra first rounds.

    first_share, learned_share, polish_share: share of the candidates in each round, of ``Workload.most_searched`` at
                                              the most; at least ``least`` in the first two.
    similarity_penalty: see ``nearness.diverse_sample``.
    optimism: number of standard deviations (over the trees) that are subtracted from an estimate.
    leaders:  the third round tries neighbours of this many of the fastest configurations.
    first_price, learned_price: of a second of compiling a kernel that no size has asked for (``CompileWork``); a
                                size by itself, which shares with none, asks as if they were 0.
    min_gain: smallest expected gain over the first round, as a share of its best time, for which a neighbour is tried.
    """

    seed: int = 0
    jobs: int = 1
    first_share: float = 0.035
    learned_share: float = 0.025
    polish_share: float = 0.02
    least: int = 16
    similarity_penalty: float = 3.0
    optimism: float = 0.5
    leaders: int = 3
    min_gain: float = 0.004
    first_price: float = 0.15
    learned_price: float = 0.1
    _estimates: Remembered[list[Estimate]] = field(
        default_factory=partial(Remembered, ESTIMATES), init=False, compare=False, repr=False
    )
    # One only: of thousands of sizes they are large.
    _features: Remembered[list[Floats]] = field(
        default_factory=partial(Remembered, 1), init=False, compare=False, repr=False
    )
    _proposals: Remembered[Proposals] = field(
        default_factory=partial(Remembered, PROPOSALS), init=False, compare=False, repr=False
    )

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        return next_step(self._rounds(), sizes, device).proposals

    def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
        rounds = self._rounds()
        if next_step(rounds, sizes, device).place >= len(rounds) - 1:  # nothing follows the polish
            return {}
        if any(size.timed_us and requested.get(size.problem) for size in sizes):  # then the polish follows
            likely = [self._near_leaders(size, one, requested) for size, one in self._estimated(sizes, device)]
        elif any(size.timed_us for size in sizes):
            likely = [self._order(size, one) for size, one in self._estimated(sizes, device)]
        else:
            likely = [size.by_prediction() for size in sizes]
        rest = {
            size.problem: worth_ahead(size, not_requested(size, names, requested), count, device.target)
            for size, names in zip(sizes, likely, strict=True)
        }
        return {problem: names for problem, names in rest.items() if names}

    def _near_leaders(self, size: SizeView, one: Estimate, requested: Requested) -> list[str]:
        """What the polish may ask for while the learned round is timed: neighbours of the fastest, by time or, of those
        that are being timed, by estimate."""
        expected = dict(zip(size.candidates.index, np.exp(one.log_us).tolist(), strict=True))
        timing = [name for name in requested.get(size.problem, ()) if name in expected]  # others are searched apart
        us = {**{name: expected[name] for name in timing}, **size.timed_us}
        return self._worth_polishing(size, one, us)[: self._share(size, self.polish_share)]

    def _rounds(self) -> tuple[Round, ...]:
        first, learned, polish = map(self._once, (self._first, self._learned, self._polish))
        return first, *[self._first_again] * MORE_FIRST, learned, polish

    def _once(self, of: Round) -> Round:
        """The round, computed once for the same views: each proposal goes through all rounds before it again."""

        def proposed(sizes: Sequence[SizeView], before: Sequence[SizeView], device: Device) -> Proposals:
            # What was known before follows from what is.
            return self._proposals.of((of.__name__, device, content(sizes)), lambda: of(sizes, before, device))

        return proposed

    def _first(self, sizes: Sequence[SizeView], before: Sequence[SizeView], device: Device) -> Proposals:
        work = CompileWork(device.target, self.first_price if len(sizes) > 1 else 0.0)
        chosen = {}
        for size in sizes:
            count, known = self._count(size, self.first_share), workload_of(size.problem.kind).search_axes
            kernels, price = work.prices(size)
            names = diverse_sample(size.candidates, count, self.similarity_penalty, known, kernels, price)
            work.ask(size, names)
            chosen[size.problem] = names
        return chosen

    @staticmethod
    def _first_again(sizes: Sequence[SizeView], before: Sequence[SizeView], device: Device) -> Proposals:
        """For each size without a time, as many more candidates as have failed so far, predicted best first."""
        untimed = [size for size in sizes if not size.timed_us]
        return {size.problem: not_requested(size, size.by_prediction(), {})[: len(size.failed)] for size in untimed}

    def _learned(self, sizes: Sequence[SizeView], before: Sequence[SizeView], device: Device) -> Proposals:
        work = CompileWork(device.target, self.learned_price if len(sizes) > 1 else 0.0)
        for size in sizes:
            work.ask(size, [*size.timed_us, *size.failed])
        chosen = {}
        for size, one in self._estimated(sizes, device):
            _, price = work.prices(size)
            names = not_requested(size, self._order(size, one, price), {})[: self._count(size, self.learned_share)]
            work.ask(size, names)
            chosen[size.problem] = names
        return chosen

    def _polish(self, sizes: Sequence[SizeView], before: Sequence[SizeView], device: Device) -> Proposals:
        """Neighbours of what is fastest now, by the estimates that the learned round was chosen by: fitted again to its
        results, trees expect little of neighbours of what was just timed (docs/search.md)."""
        chosen = {}
        estimated = {size.problem: one for size, one in self._estimated(before, device)}
        for size in (one for one in sizes if one.problem in estimated):
            worth = self._worth_polishing(size, estimated[size.problem], size.timed_us)
            names = not_requested(size, worth, {})
            chosen[size.problem] = names[: self._share(size, self.polish_share)]
        return chosen

    def _worth_polishing(self, size: SizeView, one: Estimate, us: Mapping[str, float]) -> list[str]:
        """Neighbours of the fastest of ``us`` with an expected gain, by optimistic estimate."""
        # Equal times are ordered by name, so that the result does not depend on the order in which times arrive.
        leaders = sorted(us, key=lambda name: (us[name], name))[: self.leaders]
        near = neighbours(size.candidates, leaders, workload_of(size.problem.kind).search_axes)
        worth = set(size.candidates.index[near & (one.gain >= self.min_gain)])
        return [name for name in self._order(size, one) if name in worth]

    def _count(self, size: SizeView, share: float) -> int:
        return max(self.least, self._share(size, share))

    def _share(self, size: SizeView, share: float) -> int:
        return int(share * min(len(size.candidates), workload_of(size.problem.kind).most_searched))

    def _estimated(self, sizes: Sequence[SizeView], device: Device) -> list[tuple[SizeView, Estimate]]:
        """Each size with its estimates; empty if nothing is timed yet, because the regression needs at least one
        time."""
        if not any(size.timed_us for size in sizes):
            return []
        untimed = content(size.only(()) for size in sizes)

        def estimated() -> list[Estimate]:
            tables = self._features.of((device, untimed), lambda: features_of(sizes, device))
            return estimates(sizes, tables, seed=self.seed, jobs=self.jobs)

        return list(zip(sizes, self._estimates.of((device, content(sizes)), estimated), strict=True))

    def _order(self, size: SizeView, one: Estimate, price: Floats | float = 0.0) -> list[str]:
        """All names, sorted by optimistic estimate, lowest first. price: beside it, of compiling."""
        best_first = np.argsort(one.log_us - self.optimism * one.spread + price, kind="stable")
        return [str(name) for name in size.candidates.index[best_first]]
