"""The measured way on a stand-in GPU, and what it came to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from samples import config, problem
from tuning import StandInGpu, restarted, session, state_of

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.space.size_state import SizeState

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
CONFIGS = tuple(config(num_stages=stages) for stages in (2, 3, 4, 5))
A, B, C, D = (one.name for one in CONFIGS)
OLD = config(num_warps=8)
TIMES = {A: 50.0, B: 40.0, C: 60.0, D: 80.0}


class Run:
    """A batch of two sizes; nothing is compiled unless a test says so."""

    def __init__(
        self, folder: Path, *gpus: StandInGpu, configs: tuple[KernelConfig, ...] = CONFIGS, **how: Any
    ) -> None:
        self.gpus = gpus or (StandInGpu(us=TIMES),)
        asked = {"search": "full", "compile_stage": False, **how}
        self.session = session(folder, ONE, TWO, gpus=len(self.gpus), **asked)
        self.states = [state_of(ONE, configs), state_of(TWO, configs)]

    def run(self) -> Session:
        Tuning(self.session, self.states, self.gpus).run()
        for state in self.states:
            state.assert_complete()
        return self.session

    def again(self, *gpus: StandInGpu) -> Run:
        """The same command after this one's process is gone."""
        other = object.__new__(Run)
        other.gpus, other.session = gpus, restarted(self.session)
        other.states = [state_of(size, CONFIGS) for size in (ONE, TWO)]
        return other


def chosen(of: Session) -> dict[int, str]:
    return {size.m: choice.config.name for size, choice in of.results.choices.items()}


def statuses(state: SizeState) -> dict[str, str]:
    return {name: row["status"] for name, row in state.rows.items()}
