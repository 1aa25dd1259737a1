"""Search algorithms: they decide which configurations of each size are timed next. They only see ``SizeView``s, and use
neither a GPU nor a compiler.

May import core.
"""

from __future__ import annotations

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.workload import workload_of
from gemm_tuner.search import genetic
from gemm_tuner.search.plain import Full, Quick
from gemm_tuner.search.view import Proposals, Requested, Search, SizeView

__all__ = [
    "FEW_SIZES",
    "SEARCHES",
    "Proposals",
    "Requested",
    "Search",
    "SizeView",
    "expected_requests",
    "expected_rounds",
    "load",
    "make_search",
]

# Of so many sizes the first proposals take less than what ``load`` imports, which may begin beside them.
FEW_SIZES = 4
SEARCHES = ("guided", "full", "quick", "genetic")
QUICK_COUNT = 16
# Configurations per round of the full search, over all sizes; with this many, starting the profiler takes only a few
# percent of the round's time.
FULL_ROUND = 7500
FULL_FIRST_ROUND = 1500
# Share of a size's candidates that the guided search times, measured on benchmarks/landscapes (docs/search.md).
GUIDED_ROUNDS = 3
GUIDED_SHARE = 0.063
GUIDED_LEAST = 32


def make_search(name: str, *, seed: int = 0, jobs: int = 1, round_size: int = FULL_ROUND) -> Search:
    """The search called ``name``. seed: of its random numbers. jobs: number of threads. round_size: of the full search.

    Raises UserError for a name that is not one of SEARCHES.
    """
    if name == "full":
        return Full(round_size, min(round_size, FULL_FIRST_ROUND))
    if name == "quick":
        return Quick(QUICK_COUNT)
    if name == "guided":
        from gemm_tuner.search.guided import Guided  # importing scikit-learn takes a second

        return Guided(seed=seed, jobs=jobs)
    if name == "genetic":
        return genetic.Genetic(seed)
    raise UserError(f"there is no search {name!r}", where="--search", accepted=", ".join(SEARCHES))


def load(name: str) -> None:
    """Imports what the search called ``name`` needs from its second round on: in a thread of its own it costs nothing
    while kernels are compiled."""
    if name == "guided":
        from gemm_tuner.search import learned

        learned.load()


def expected_rounds(name: str, requested: int) -> int:
    """Estimated number of rounds for ``requested`` configurations, over all sizes."""
    full = 1 + -(-max(0, requested - FULL_FIRST_ROUND) // FULL_ROUND)
    return {"guided": GUIDED_ROUNDS, "full": full, "genetic": genetic.GENERATIONS}.get(name, 1)


def expected_requests(name: str, candidates: int, kind: str) -> int:
    """Estimated number of the ``candidates`` of a size, a problem of this kind, that a search times."""
    guided = max(GUIDED_LEAST, round(GUIDED_SHARE * min(candidates, workload_of(kind).most_searched)))
    bred = genetic.GENERATIONS * max(genetic.LEAST, int(genetic.SHARE * candidates))
    return min(candidates, {"guided": guided, "quick": QUICK_COUNT, "genetic": bred}.get(name, candidates))
