"""A consumer of ``--serve`` on one device: what its kernel can launch of a size's configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gemm_tuner.consumers.consumer import STAND_IN, Consumer
from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.core.records import Config, Device, Problem
from gemm_tuner.gemm.config import tile
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.space.size_state import SizeState


@dataclass(frozen=True)
class Server:
    """A consumer on one device.

    given:  the name of the only configuration of each size, if configurations are given instead of searched.
    older:  configurations of an older results file, which a new one must beat by ``least_pct``.
    kernel: the server's own kernel, if it is measured; its configurations then belong to the kernel's family.
    """

    consumer: Consumer
    device: Device
    given: Mapping[Problem, str] | None = None
    older: Mapping[Problem, Config] = field(default_factory=dict)
    least_pct: float = 0.0
    kernel: ConsumerKernel | None = None

    @property
    def family(self) -> str:
        return self.kernel.family if self.kernel else STAND_IN

    @property
    def name(self) -> str:
        return self.consumer.name

    @property
    def _arch(self) -> str:
        return self.device.target.arch

    def fault(self, problem: Problem) -> str:
        """Why its kernel cannot compute a problem; "" if it can."""
        if not isinstance(problem, GemmProblem):
            return f"is of the kind {problem.kind}, which no server has a file for"
        return self.consumer.problem_fault(problem, self._arch)

    def can_launch(self, problem: Problem, config: Config) -> bool:
        if self.given is not None and self.given.get(problem) != config.name:
            return False
        if config.family != self.family or self.fault(problem):
            return False
        return not self.consumer.config_fault(as_gemm(problem), self.served(config), self._arch)

    def stand_ins(self, columns: Any) -> Any:
        """Which rows of a table of configurations are of STAND_IN, with the fields that its kernel has."""
        return (columns.family == STAND_IN) & ((columns.SPLIT_K == 1) | self.consumer.splits_k)

    def served(self, config: Config) -> Config:
        """A configuration that it can launch, as results show it: of STAND_IN."""
        return replace(tile(config), family=STAND_IN)

    def launched(self, config: Config) -> Config:
        """The configuration that is measured for a configuration of STAND_IN."""
        return replace(tile(config), family=self.family) if config.family == STAND_IN else config

    def default(self, problem: Problem) -> Config | None:
        """What it launches without a tuned file; None if unknown."""
        found = None if self.fault(problem) else self.consumer.default_config(as_gemm(problem), self._arch)
        return None if found is None else self.launched(found)

    def musts(self, problem: Problem) -> list[Config]:
        """The configurations that are always timed: the default and the older one."""
        older = self.older.get(problem)
        return [one for one in (self.default(problem), older and self.launched(older)) if one is not None]

    def launchable(self, state: SizeState) -> list[str]:
        """The names of kept configurations of a size that it can launch."""
        return [name for name, config in state.kept.items() if self.can_launch(state.problem, config)]
