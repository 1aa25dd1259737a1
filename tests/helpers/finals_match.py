"""Finals of two sizes on stand-ins of GPUs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samples import config, problem
from tuning import StandInGpu, finals_of, scripts_of, session, state_of

from gemm_tuner.core.records import Status, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import VENDOR, Plan, Work
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline.finals import Finals

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
CONFIGS = tuple(config(num_stages=stages) for stages in (2, 3, 4))
A, B, C = (one.name for one in CONFIGS)
SURE, UNSURE = (0.0, 0.0, 0.0), (0.03, 0.0, 0.0)
NOISE = 0.03  # so that a difference of half a percent needs more rounds than one block has


class Uncertain(StandInGpu):
    """Whose processes move the first finalist by a pattern over choosing processes, and others by a table.

    Those that start together have no noise beside: it would follow from which of them comes first.
    """

    def __init__(
        self,
        times: dict[str, float],
        moves: tuple[float, ...],
        at: dict[int, dict[str, float]] | None = None,
        overlaps: bool = False,
    ) -> None:
        super().__init__(overlaps=overlaps)
        self.times, self.moves, self.at = times, moves, at or {}

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        factors = {**self.times, **self.at.get(plan.process, {})}
        place = plan.process if self.overlaps else plan.process // 2  # those that start together choose first
        factors[A] += self.moves[place % len(self.moves)]
        us = {name: 100.0 * factor for name, factor in factors.items()}
        noise = 0.0 if self.overlaps else 0.002
        vendor_us = self.vendor_us * factors.get(VENDOR, 1.0)
        of_process = StandInGpu(us, jitter=noise, vendor_us=vendor_us, before=self.before, plans=self.plans)
        of_process.after_a_size = self.after_a_size
        return of_process.timings(plan, folder, on_event, on_found)


class Match:
    """The finals of two sizes, or others, with three finalists each, on a GPU and maybe others."""

    def __init__(
        self,
        folder: Path,
        gpu: StandInGpu,
        *others: StandInGpu,
        sizes: Sequence[GemmProblem] = (ONE, TWO),
        **options: Any,
    ) -> None:
        self.gpu, self.session = gpu, session(folder, *sizes, gpus=1 + len(others), **options)
        self.states = [state_of(size, CONFIGS) for size in sizes]
        self.finals = finals_of(self.session, scripts_of(self.states), [gpu, *others])

    def run(self) -> Finals:
        self.finals.run([(state, list(state.kept)) for state in self.states])
        return self.finals

    def works(self) -> list[list[Work]]:
        return [list(plan.work) for plan in self.gpu.plans]


def screened(size: GemmProblem, us: float, noise: float, configs: int = 20) -> list[Timing]:
    """The screening of a size, whose clocks drift."""
    dice = random.Random(1)
    return [
        Timing(size, f"{at}", Status.OK, tuple(us * (1 + 0.1 * at) * (1 + noise * dice.gauss(0, 1)) for _ in range(5)))
        for at in range(configs)
    ]
