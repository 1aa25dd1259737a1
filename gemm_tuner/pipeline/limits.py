"""What can end a run early: a signal, and the run's budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gemm_tuner.measure.budget import Budget, Pace
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.system.interruption import Interruption


@dataclass
class Limits:
    """pace: the budget, and the cost of starts, checks and compilations."""

    interruption: Interruption
    pace: Pace

    @property
    def budget(self) -> Budget:
        return self.pace.budget

    def learn_all(self, runs: Iterable[StageRun]) -> None:
        """Records the cost of each profiler start."""
        for run in runs:
            self.learn(run)

    def learn(self, run: StageRun) -> None:
        """Records the cost of a profiler start."""
        if run.starts == 1:
            self.pace.count_start(sum(len(timing.samples_us) for timing in run.timings.values()), run.seconds)
