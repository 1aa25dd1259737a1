"""What checks several configurations of one problem: against a reference, or with each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Generic, Protocol, TypeVar

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


class Shared(Protocol):
    """What the checks of configurations of one problem share.

    kept: whether it can be used for another configuration.
    """

    kept: bool

    def are_intact(self) -> bool:
        """Whether nothing of it has been written to since it was made."""


S = TypeVar("S", bound=Shared)


class SharingExaminer(Generic[S]):
    """Each configuration gets the verdict of a check by itself, but what checks share is made once.

    A faulty kernel may write anywhere: to an operand, which the next kernel would multiply, or to the reference. So
    after each configuration it is seen whether anything that is kept has changed. Then all of it is made anew, and that
    configuration is checked again alone, since what it was compared with may have changed under it. If that changes it
    again, it is wrong whatever its result: ``fault`` says so.
    """

    def __init__(
        self, make: Callable[[], S], examined: Callable[[ModuleType, str, S], Verdict], fault: str = ""
    ) -> None:
        """make: makes what is shared. examined: checks a configuration with it; raises what its launch raises. fault:
        the message of a verdict on a configuration that writes to what is shared; "" where that may be right."""
        self._make, self._examined, self._fault = make, examined, fault
        self._shared: S | None = None

    def verdict(self, script: ModuleType, name: str) -> Verdict:
        """Raises what a launch raises; the next configuration then finds nothing of before."""
        shared, self._shared = self._shared, None
        is_first = shared is None
        shared = shared or self._make()
        verdict = self._examined(script, name, shared)
        if not shared.kept:
            return verdict
        if shared.are_intact():
            self._shared = shared
            return verdict
        del shared  # before it is made anew
        if not is_first:
            return self.verdict(script, name)
        return replace(verdict, ok=False, message=self._fault) if verdict.ok and self._fault else verdict
