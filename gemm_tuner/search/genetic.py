"""The genetic search: each generation of configurations is bred from the fastest known ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gemm_tuner.core.records import Device
from gemm_tuner.search.staged import next_step
from gemm_tuner.search.view import Proposals, Requested, SizeView, not_requested

Genes = tuple[Any, ...]
Pools = dict[Genes, list[tuple[int, list[Any]]]]
GENERATIONS, SHARE, LEAST = 6, 0.012, 16


@dataclass(frozen=True, slots=True)
class Genetic:
    """A genetic search. The genes of a configuration are its axis values.

    Half of the first generation are the predicted best, half are random. In later generations each gene of a child
    comes from one of two parents, and one gene may be mutated. A parent is the fastest of ``tournament`` random members
    of the pool, which are as many of the fastest configurations as a generation has.

    share:    generation size as a share of a size's candidates; at least ``least``.
    mutation: probability that a child has a mutated gene.
    tries:    number of children bred per child needed, because many are already known or rejected by rules.
    """

    seed: int = 0
    generations: int = GENERATIONS
    share: float = SHARE
    least: int = LEAST
    tournament: int = 3
    mutation: float = 0.5
    tries: int = 30

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        rounds = [partial(self._generation, number) for number in range(self.generations)]
        return next_step(rounds, sizes, device).proposals

    def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
        likely = {}
        for size in sizes:
            children = self._children(size, self._lot(size, "likely"), count) if size.timed_us else []
            likely[size.problem] = not_requested(size, [*children, *size.by_prediction()], requested)[:count]
        return {problem: names for problem, names in likely.items() if names}

    def _generation(
        self, number: int, sizes: Sequence[SizeView], before: Sequence[SizeView], device: Device
    ) -> Proposals:
        return {size.problem: self._asked(number, size) for size in sizes}

    def _asked(self, number: int, size: SizeView) -> list[str]:
        count, lot = self._count(size), self._lot(size, str(number))
        by_prediction = not_requested(size, size.by_prediction(), {})
        children = self._children(size, lot, count) if size.timed_us else by_prediction[: count // 2]
        rest = [name for name in by_prediction if name not in children]
        # If nothing is timed yet, or if too few new children are found, the rest is random.
        return [*children, *lot.sample(rest, min(len(rest), count - len(children)))]

    def _count(self, size: SizeView) -> int:
        return max(self.least, int(self.share * len(size.candidates)))

    def _lot(self, size: SizeView, generation: str) -> random.Random:
        return random.Random(f"{self.seed} {size.problem.key} {generation}")

    def _children(self, size: SizeView, lot: random.Random, count: int) -> list[str]:
        """Up to ``count`` names of children that are not known yet."""
        table = size.candidates.drop(columns=["predicted_us"])
        rows = table.itertuples(index=False, name=None)
        genes = [
            tuple(None if value != value else value for value in row) for row in rows
        ]  # NaN: family has no such axis
        names = {of: str(name) for of, name in zip(genes, table.index, strict=True)}
        of_name = dict(zip(map(str, table.index), genes, strict=True))
        pools = _pools(genes)
        # Equal times are ordered by name, so that the result does not depend on the order in which times arrive.
        parents = sorted(size.timed_us, key=lambda name: (size.timed_us[name], name))[: self._count(size)]
        found: dict[str, None] = {}
        for _ in range(self.tries * count):
            if len(found) == count:
                break
            mother, father = (self._parent(parents, lot) for _ in range(2))
            child = self._child(of_name[mother], of_name[father], pools, lot)
            name = names.get(child)
            if name is not None and not size.knows(name):
                found[name] = None
        return list(found)

    def _parent(self, parents: Sequence[str], lot: random.Random) -> str:
        """The fastest of a few random ``parents``, which are sorted by time."""
        return parents[min(lot.randrange(len(parents)) for _ in range(self.tournament))]

    def _child(self, mother: Genes, father: Genes, pools: Pools, lot: random.Random) -> Genes:
        genes = [lot.choice(pair) for pair in zip(mother, father, strict=True)]
        pool = pools.get(_absent(genes), [])
        if pool and lot.random() < self.mutation:
            place, values = lot.choice(pool)
            genes[place] = lot.choice(values)
        return tuple(genes)


def _absent(genes: Sequence[Any]) -> Genes:
    """Which axes a configuration does not have: the same for all of one family."""
    return tuple(value is None for value in genes)


def _pools(all_genes: Sequence[Genes]) -> Pools:
    """What may mutate, by the axes that configurations lack: the places that vary among these, and their values.

    By family, since a value of an axis that a family lacks, or that is fixed in it, makes no candidate.
    """
    alike: dict[Genes, list[Genes]] = {}
    for genes in all_genes:
        alike.setdefault(_absent(genes), []).append(genes)
    pools: Pools = {}
    for absent, some in alike.items():
        values = [sorted(set(column), key=str) for column in zip(*some, strict=True)]
        pools[absent] = [(place, of) for place, of in enumerate(values) if len(of) > 1]
    return pools
