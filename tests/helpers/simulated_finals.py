"""Finals of kernels whose true times are known: noise of calls, drift of rounds, and an effect of each process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from samples import config, problem

from gemm_tuner.core.records import Status, Timing
from gemm_tuner.decide.finals_plan import FinalsPlan
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import AA_TEST, VENDOR

SIZE = problem(512, 512, 512)
CONFIGS = {one.name: one for one in (config(num_stages=stages, num_warps=w) for w in (4, 8) for stages in range(2, 10))}
NAMES = tuple(sorted(CONFIGS))
DRIFT = 0.03


@dataclass(frozen=True)
class Machine:
    """call: relative standard deviation of a call. process: of a kernel's time in a process. Drift is by rounds and
    common to all kernels."""

    call: float = 0.01
    process: float = 0.0
    rounds: int = 30
    plan: FinalsPlan = field(default_factory=FinalsPlan)

    def finals(self, us: Sequence[float], seed: int, processes: int = 0, vendor_us: float = 0.0) -> list[Timing]:
        """The timings of kernels NAMES of these true times, the first of them as two finalists."""
        dice = np.random.default_rng(seed)
        found: list[Timing] = []
        for number in range(processes or self.plan.processes):
            role = self.plan.role(number)
            true = np.array([*us, us[0], *([vendor_us] if vendor_us else [])])
            effect = np.exp(self.process * dice.standard_normal(len(true)))
            effect[len(us)] = effect[0]
            drift = 1 + DRIFT * dice.random((self.rounds, 1))
            noise = 1 + self.call * dice.standard_normal((self.rounds, len(true)))
            samples = (true * effect * drift * noise).T
            names = [*NAMES[: len(us)], AA_TEST, *([VENDOR] if vendor_us else [])]
            found += [
                Timing(SIZE, name, Status.OK, tuple(row), NAMES[0] if name == AA_TEST else "", number, role)
                for name, row in zip(names, samples.tolist(), strict=True)
            ]
        return found


def of_size(timings: list[Timing], size: GemmProblem) -> list[Timing]:
    return [Timing(size, t.name, t.status, t.samples_us, t.message, t.process, t.role) for t in timings]
