"""The last answers of a pure function, so that one is not computed again for the same views.

A search computes every round anew from what is known, and what is likely next from what the round before it was.
"""

from __future__ import annotations

import hashlib
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
    """Stands for what a search sees of these sizes; a configuration is what its name says. Of thousands of sizes it is
    small, so that many can be remembered."""
    return tuple((size.problem, _digest(size)) for size in sizes)


def _digest(size: SizeView) -> bytes:
    told = repr((sorted(size.timed_us.items()), sorted(size.failed)))
    digest = hashlib.sha256("\n".join(map(str, size.candidates.index)).encode())
    digest.update(size.candidates["predicted_us"].to_numpy().tobytes())
    digest.update(told.encode())
    return digest.digest()
