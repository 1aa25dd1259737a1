"""How much finals do: processes, finalists and rounds, and which process chooses and which publishes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gemm_tuner.records import Role
from gemm_tuner.settings import Settings

PROCESSES = 5
MORE_PROCESSES = 2
# Rounds are as many as bring the standard error of a median in one process to this: below it, processes differ more.
TARGET_PCT = 0.25
# Quiet sizes run in this part of the rounds that were asked for, noisy ones in at most this many times as many.
LEAST_PART = 1 / 3
MOST_TIMES = 8
# Standard error of a median over that of a mean, of normal noise.
MEDIAN_FACTOR = math.sqrt(math.pi / 2)


@dataclass(frozen=True, slots=True)
class FinalsPlan:
    """finalists: of a size, at most. rounds: of the first process; ``rounds_at`` gives those of the others.

    processes: planned, of which every second one publishes; a single one chooses and publishes.
    more:      further choosing processes, for sizes of which noise hides who is fastest.
    """

    finalists: int = 8
    rounds: int = 30
    processes: int = PROCESSES
    more: int = MORE_PROCESSES

    def role(self, index: int) -> Role:
        """Of the planned process number ``index``. They take turns, so that both kinds are there when time runs out
        early."""
        return Role.PUBLISH if index % 2 else Role.CHOOSE

    @property
    def most_choosing(self) -> int:
        """Processes that can choose, further ones included."""
        return self.processes - self.processes // 2 + self.more

    def rounds_at(self, noise: float | None) -> int:
        """Rounds of a size whose calls have this relative standard deviation; None: not known."""
        if noise is None or math.isnan(noise):
            return self.rounds
        wanted = math.ceil((100 * MEDIAN_FACTOR * noise / TARGET_PCT) ** 2)
        return min(MOST_TIMES * self.rounds, max(math.ceil(LEAST_PART * self.rounds), wanted))


def publishing_of(processes: int) -> int:
    """How many processes publish, of those that a row's finals had in all: further ones choose."""
    return max(1, min(PROCESSES, processes) // 2)


def plan_of(settings: Settings) -> FinalsPlan:
    """What a run does unless its budget leaves time for less."""
    return FinalsPlan(finalists=settings.finalists, rounds=settings.iters)
