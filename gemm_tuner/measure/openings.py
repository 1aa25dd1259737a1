"""How far launchers that wait for a plan are with opening the GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Openings:
    """How many launchers that wait are opening the GPU, and how many have not begun to."""

    now: int = 0
    left: int = 0

    def __add__(self, other: Openings) -> Openings:
        return Openings(self.now + other.now, self.left + other.left)
