"""Stateless searches in rounds: every round is recomputed from the known results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gemm_tuner.core.records import Device, Problem
from gemm_tuner.search.view import Proposals, SizeView, not_requested

# Proposes from what is known (the first argument), and from what was known to the round before it (the second).
Round = Callable[[Sequence[SizeView], Sequence[SizeView], Device], Proposals]


@dataclass(frozen=True, slots=True)
class Step:
    """The round that is next, or is being timed. place: of the round. proposals: those that are unknown."""

    place: int
    proposals: Proposals


def next_step(rounds: Sequence[Round], sizes: Sequence[SizeView], device: Device) -> Step:
    """The first round that has unknown proposals; if no round has, none of them at the place behind the last.

    Each round only sees the results of earlier rounds, not the partial results of its own, so that a run that was
    killed in the middle of a round continues with the rest of exactly that round.
    """
    requested: dict[Problem, set[str]] = {size.problem: set() for size in sizes}
    before: Sequence[SizeView] = [size.only(()) for size in sizes]
    for place, propose in enumerate(rounds):
        known = [size.only(requested[size.problem]) for size in sizes]
        wanted = propose(known, before, device)
        left = {size.problem: not_requested(size, wanted.get(size.problem, []), {}) for size in sizes}
        if any(left.values()):
            return Step(place, {problem: names for problem, names in left.items() if names})
        for problem, names in wanted.items():
            requested[problem].update(names)
        before = known
    return Step(len(rounds), {})
