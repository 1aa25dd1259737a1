"""The finalists that won a size by its publishing processes, although others were chosen; kept in the run's store."""

from __future__ import annotations

from dataclasses import dataclass

from gemm_tuner.core.records import Problem
from gemm_tuner.store.store import Store

# Prefix of a fact per size: the finalist that ranked first, and the one that replaced it.
FACT = "overruled "
REASON = "clearly slower in the processes that publish"


@dataclass(frozen=True)
class Overruled:
    store: Store

    def keep(self, problem: Problem, slower: str, better: str) -> None:
        self.store.set_fact(FACT + problem.key, (slower, better))

    def forget(self, problem: Problem) -> None:
        self.store.drop_fact(FACT + problem.key)

    def in_order(self, problem: Problem, order: tuple[str, ...]) -> tuple[str, ...]:
        """The finalists, best first, with the one that won in this way, if any, at the front."""
        _, better = self.store.fact(FACT + problem.key, ("", ""))
        return (better, *(name for name in order if name != better)) if better in order else order

    def by(self, problem: Problem, name: str) -> dict[str, str]:
        """The finalist that ``name`` replaced, if it did, with the reason."""
        slower, better = self.store.fact(FACT + problem.key, ("", ""))
        return {slower: REASON} if name == better != slower else {}
