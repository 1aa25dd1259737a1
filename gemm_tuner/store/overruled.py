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

    def of(self, problem: Problem) -> tuple[str, str]:
        """(the finalist that had been chosen, the one that won), empty for a size whose choice held."""
        slower, better = self.store.fact(FACT + problem.key, ("", ""))
        return slower, better

    def by(self, problem: Problem, name: str) -> dict[str, str]:
        """The finalist that ``name`` replaced, if it did, with the reason."""
        slower, better = self.of(problem)
        return {slower: REASON} if name == better != slower else {}
