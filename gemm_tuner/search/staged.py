"""Searches in rounds that remember nothing: all rounds are computed again from what is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gemm_tuner.core.records import Device, Problem
from gemm_tuner.search.view import Proposals, SizeView, not_asked

Round = Callable[[Sequence[SizeView], Device], Proposals]


def next_round(rounds: Iterable[Round], sizes: Sequence[SizeView], device: Device) -> Proposals:
    """What the first round asks for that asks for something unknown; empty when none does.

    Each round sees the results of what earlier rounds asked for, and of nothing else, so that a run that was killed in
    the middle of a round continues with the rest of exactly that round.
    """
    asked: dict[Problem, set[str]] = {size.problem: set() for size in sizes}
    for ask in rounds:
        wanted = ask([size.only(asked[size.problem]) for size in sizes], device)
        left = {size.problem: not_asked(size, wanted.get(size.problem, []), {}) for size in sizes}
        if any(left.values()):
            return {problem: names for problem, names in left.items() if names}
        for problem, names in wanted.items():
            asked[problem].update(names)
    return {}
