"""What checks several configurations of one problem: against a reference, or with each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

from gemm_tuner.core.records import Problem, Verdict


class Jury(Protocol):
    """Compares the results of configurations with each other."""

    def hear(self, script: ModuleType, name: str) -> None:
        """Runs one configuration. Raises what its launch raises."""

    def verdicts(self) -> Mapping[str, Verdict]:
        """Of all that were heard, by name."""


class Examiner(Protocol):
    """Compares the results of configurations with the reference, one after the other."""

    def verdict(self, script: ModuleType, name: str) -> Verdict:
        """Runs one configuration. Raises what its launch raises."""


class Checks(Protocol):
    """The part of a workload that checks one configuration."""

    def check(self, script: ModuleType, problem: Problem, name: str, seed: int, device: str) -> Verdict:
        """As ``core.workload.Workload.check``."""


@dataclass(frozen=True)
class CheckEach:
    """An examiner that keeps nothing."""

    workload: Checks
    problem: Problem
    seed: int
    device: str

    def verdict(self, script: ModuleType, name: str) -> Verdict:
        return self.workload.check(script, self.problem, name, self.seed, self.device)
