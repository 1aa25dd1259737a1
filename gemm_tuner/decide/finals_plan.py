"""How much finals do: processes, finalists and rounds, and which process chooses and which publishes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gemm_tuner.core.records import Role
from gemm_tuner.launch.plan import REST_S
from gemm_tuner.measure.budget import Cost

PROCESSES = 5
MORE_PROCESSES = 2
# Rounds are as many as bring the standard error of a median in one process to this: below it, processes differ more.
TARGET_PCT = 0.25
# Quiet sizes run in this part of the rounds that were asked for, noisy ones in at most this many times as many.
LEAST_PART = 1 / 3
MOST_TIMES = 8
# Of finals that a budget leaves little time for.
LEAST_FINALISTS, LEAST_ROUNDS = 2, 5
# Beside the finalists of a size run the vendor library and a second copy of one of them.
BESIDE_FINALISTS = 2
# Standard error of a median over that of a mean, of normal noise.
MEDIAN_FACTOR = math.sqrt(math.pi / 2)


@dataclass(frozen=True, slots=True)
class FinalsPlan:
    """finalists: of a size, at most. rounds: of the first process; ``rounds_at`` gives those of the others.

    processes: planned, of which every second one publishes; a single one chooses and publishes.
    more:      further choosing processes, for sizes of which noise hides who is fastest.
    most_times: how many times ``rounds`` a noisy size may have.
    """

    finalists: int = 8
    rounds: int = 30
    processes: int = PROCESSES
    more: int = MORE_PROCESSES
    most_times: int = MOST_TIMES

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
        return min(self.most_times * self.rounds, max(math.ceil(LEAST_PART * self.rounds), wanted))


def fitted(plan: FinalsPlan, sizes: int, tiring: int, left_s: float, start: Cost) -> FinalsPlan:
    """The plan, or as much of it as ``left_s`` seconds leave time for: fewer finalists, then rounds, then processes.

    sizes: in all. tiring: of these, whose calls are so long that the GPU rests after them. start: what a profiler start
    takes, and each of its calls. One process of LEAST_FINALISTS and LEAST_ROUNDS is left in any case.
    """

    def takes_s(finalists: int, rounds: int, processes: int) -> float:
        calls = sizes * (finalists + BESIDE_FINALISTS) * rounds
        return processes * (start.of(calls) + tiring * REST_S)

    least = min(LEAST_FINALISTS, plan.finalists), min(LEAST_ROUNDS, plan.rounds)
    processes = most_that_fits(plan.processes, 1, lambda count: takes_s(*least, count) <= left_s)
    rounds = most_that_fits(plan.rounds, least[1], lambda count: takes_s(least[0], count, processes) <= left_s)
    finalists = most_that_fits(plan.finalists, least[0], lambda count: takes_s(count, rounds, processes) <= left_s)
    if (finalists, rounds, processes) == (plan.finalists, plan.rounds, plan.processes):
        return plan
    return replace(plan, finalists=finalists, rounds=rounds, processes=processes, most_times=1)


def most_that_fits(most: int, least: int, fits: Callable[[int], bool]) -> int:
    """The largest count from ``most`` down that fits, else ``least``."""
    return next((count for count in range(most, least, -1) if fits(count)), least)


def publishing_of(processes: int) -> int:
    """How many processes publish, of those that a row's finals had in all: further ones choose."""
    return max(1, min(PROCESSES, processes) // 2)
