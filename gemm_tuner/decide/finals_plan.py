"""The extent of finals: number of processes, finalists and rounds, and the role of each process."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gemm_tuner.core.records import Role
from gemm_tuner.launch.plan import REST_S
from gemm_tuner.measure.budget import Cost

PROCESSES = 5
MORE_PROCESSES = 2
# The number of rounds is chosen so that the median of one process has this standard error, which is less than the
# difference between processes.
TARGET_PCT = 0.25
# Limits of the rounds of a size with low and with high noise, as multiples of --iters.
LEAST_PART = 1 / 3
MOST_TIMES = 8
# Minimum if a budget leaves little time.
LEAST_FINALISTS, LEAST_ROUNDS = 2, 5
# Candidates in addition to the finalists: the vendor library and the duplicate of the A/A test.
BESIDE_FINALISTS = 2
# What the rounds of a size may take in a process whose noise is known from screening alone.
SCREENED_ROUNDS_S = 0.1
# Of a call beside its kernel, with the flush of L2 (H200: 35 rounds more of 20 sizes took 0.4 s).
CALL_COST_US = 60.0
# Standard error of a median over that of a mean, for normal noise.
MEDIAN_FACTOR = math.sqrt(math.pi / 2)


@dataclass(frozen=True, slots=True)
class FinalsPlan:
    """The extent of the finals of a run.

    finalists:  maximum number per size.
    rounds:     rounds while the noise is unknown; else see ``rounds_at``.
    processes:  planned number; half of them, rounded down, publish, and a single one both chooses and publishes.
    more:       number of additional choosing processes for sizes whose winner is not yet clear.
    most_times: maximum rounds of a noisy size, as a multiple of ``rounds``.
    """

    finalists: int = 8
    rounds: int = 30
    processes: int = PROCESSES
    more: int = MORE_PROCESSES
    most_times: int = MOST_TIMES

    def role(self, index: int, *, together: bool = False) -> Role:
        """The role of planned process ``index``. Of processes that start ``together`` those that choose come first, so
        that it is known early which sizes need more of them; others alternate, so that both roles exist if the time
        ends early."""
        publishes = index >= self.choosing if together else index % 2 == 1
        return Role.PUBLISH if publishes else Role.CHOOSE

    @property
    def choosing(self) -> int:
        """The number of planned processes that choose."""
        return self.processes - self.processes // 2

    @property
    def most_choosing(self) -> int:
        """The maximum number of choosing processes, including additional ones."""
        return self.choosing + self.more

    @property
    def may_follow(self) -> int:
        """The number of processes that may follow the planned ones."""
        return self.more if self.processes > 1 else 0

    def rounds_at(self, noise: float | None) -> int:
        """Number of rounds for a size whose calls have the relative standard deviation ``noise`` (None: unknown)."""
        if noise is None or math.isnan(noise):
            return self.rounds
        wanted = math.ceil((100 * MEDIAN_FACTOR * noise / TARGET_PCT) ** 2)
        return min(self.most_times * self.rounds, max(math.ceil(LEAST_PART * self.rounds), wanted))

    def rounds_by_screening(self, noise: float | None, entries: int, call_us: float) -> int:
        """``rounds_at`` for the noise of screening. More than ``rounds`` only as far as they take SCREENED_ROUNDS_S:
        what is screened at the power limit looks noisier than it is, and its calls are long.

        entries: of a round. call_us: time of the size's fastest kernel.
        """
        affordable = math.floor(SCREENED_ROUNDS_S * 1e6 / (entries * (call_us + CALL_COST_US)))
        return min(self.rounds_at(noise), max(self.rounds, affordable))


def fitted(plan: FinalsPlan, sizes: int, tiring: int, left_s: float, start: Cost) -> FinalsPlan:
    """The plan reduced to fit into ``left_s`` seconds: fewer finalists first, then fewer rounds, then fewer processes.

    sizes:  number of sizes.
    tiring: number of sizes whose calls are so long that a pause follows their finals (``plan.REST_S``).
    start:  cost of a profiler start and of each call in it.
    At least one process with LEAST_FINALISTS and LEAST_ROUNDS remains.
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
    """The largest count in (least, most] for which ``fits`` is true, else ``least``."""
    return next((count for count in range(most, least, -1) if fits(count)), least)


def publishing_of(processes: int) -> int:
    """How many of a row's ``processes`` publish at least; those beyond the planned number only choose."""
    return max(1, min(PROCESSES, processes) // 2)
