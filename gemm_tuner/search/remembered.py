"""The last answers of a pure function, so that one is not computed again for the same views.

A search computes every round anew from what is known, and what is likely next from what the round before it was.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gemm_tuner.search.view import SizeView

Answer = TypeVar("Answer")


@dataclass
class Remembered(Generic[Answer]):
    """The ``most`` answers that were asked for last."""

    most: int
    _answers: dict[Hashable, Answer] = field(default_factory=dict)

    def of(self, key: Hashable, compute: Callable[[], Answer]) -> Answer:
        """The answer for what ``key`` stands for; computed if it is not remembered."""
        if key not in self._answers:
            self._answers[key] = compute()
        answer = self._answers[key] = self._answers.pop(key)
        while len(self._answers) > self.most:
            del self._answers[next(iter(self._answers))]
        return answer


def content(sizes: Iterable[SizeView]) -> Hashable:
    """What a search sees of these sizes; a configuration is what its name says."""
    return tuple(
        (
            size.problem,
            tuple(size.candidates.index),
            size.candidates["predicted_us"].to_numpy().tobytes(),
            frozenset(size.timed_us.items()),
            size.failed,
        )
        for size in sizes
    )
