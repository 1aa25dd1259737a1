"""Stateless searches in rounds: every round is recomputed from the known results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gemm_tuner.core.records import Device, Problem
from gemm_tuner.search.view import Proposals, SizeView, not_requested

Round = Callable[[Sequence[SizeView], Device], Proposals]


def next_round(rounds: Iterable[Round], sizes: Sequence[SizeView], device: Device) -> Proposals:
    """The proposals of the first round that has unknown ones; empty if no round has.

    Each round only sees the results of earlier rounds, not the partial results of its own, so that a run that was
    killed in the middle of a round continues with the rest of exactly that round.
    """
    requested: dict[Problem, set[str]] = {size.problem: set() for size in sizes}
    for propose in rounds:
        wanted = propose([size.only(requested[size.problem]) for size in sizes], device)
        left = {size.problem: not_requested(size, wanted.get(size.problem, []), {}) for size in sizes}
        if any(left.values()):
            return {problem: names for problem, names in left.items() if names}
        for problem, names in wanted.items():
            requested[problem].update(names)
    return {}
