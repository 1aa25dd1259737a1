"""Searches: which configurations of a size to time next. They see sizes through views only, no GPU and no compiler."""

from __future__ import annotations

from gemm_tuner.core.errors import UserError
from gemm_tuner.search import genetic
from gemm_tuner.search.plain import Full, Quick
from gemm_tuner.search.view import Asked, Proposals, Search, SizeView

__all__ = ["SEARCHES", "Asked", "Proposals", "Search", "SizeView", "about_asked", "about_rounds", "make_search"]

SEARCHES = ("guided", "full", "quick", "genetic")
QUICK_COUNT = 16
# Configurations in a round of the full search over all sizes, so that a profiler's start is a few percent of its time.
FULL_ROUND = 7500
FULL_FIRST_ROUND = 1500
# Share of a size's candidates that guided asks for, measured on benchmarks/landscapes (docs/search.md).
GUIDED_ROUNDS = 3
GUIDED_SHARE = 0.063
GUIDED_LEAST = 32


def make_search(name: str, *, seed: int = 0, jobs: int = 1, round_size: int = FULL_ROUND) -> Search:
    """The search of that name. seed: of the regression. jobs: threads it may use. round_size: of the full search.

    Raises UserError for a name that is not one of SEARCHES.
    """
    if name == "full":
        return Full(round_size, min(round_size, FULL_FIRST_ROUND))
    if name == "quick":
        return Quick(QUICK_COUNT)
    if name == "guided":
        from gemm_tuner.search.guided import Guided  # scikit-learn takes a second

        return Guided(seed=seed, jobs=jobs)
    if name == "genetic":
        return genetic.Genetic(seed)
    raise UserError(f"there is no search {name!r}", where="--search", accepted=", ".join(SEARCHES))


def about_rounds(name: str, asked: int) -> int:
    """About how many rounds a search takes to ask for ``asked`` configurations, all sizes together."""
    full = 1 + -(-max(0, asked - FULL_FIRST_ROUND) // FULL_ROUND)
    return {"guided": GUIDED_ROUNDS, "full": full, "genetic": genetic.GENERATIONS}.get(name, 1)


def about_asked(name: str, candidates: int) -> int:
    """About how many of a size's candidates a search asks for."""
    guided = max(GUIDED_LEAST, round(GUIDED_SHARE * candidates))
    bred = genetic.GENERATIONS * max(genetic.LEAST, int(genetic.SHARE * candidates))
    return min(candidates, {"guided": guided, "quick": QUICK_COUNT, "genetic": bred}.get(name, candidates))
