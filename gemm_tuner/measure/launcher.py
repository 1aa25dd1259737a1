"""What works on the plans of a run: a GPU of this machine or of another, a recording, a language's interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.openings import Openings
from gemm_tuner.measure.retry import OnFound, StageRun


class Checker(Protocol):
    """Runs plans of checks."""

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        """Checks the plan's entries, in order, with its files in ``folder``; every event goes to ``on_event`` as it is
        known. Raises EnvironmentFault when the check as a whole fails."""


class HostChecker(Checker, Protocol):
    """Runs plans of checks without a GPU."""

    def prepare(self) -> None:
        """Starts what takes time before the first plan."""

    def close(self) -> None:
        """Ends what ``prepare`` has started."""


class Timer(Protocol):
    """Runs plans of screening or finals. What need not be started or closed inherits that it does nothing."""

    def prepare(self) -> None:
        """Starts what takes time before the first plan, without touching the GPU."""
        return None

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        """Times every entry of the plan that its deadline leaves time for, with its files in ``folder``.

        on_found: called with timings as they are known. Raises EnvironmentFault when no entry can be timed here any
        more: its work goes to another GPU. KeyboardInterrupt once it is cancelled.
        """

    def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
        """Lets launchers that wait for plans open the GPU, for plans like these, up to ``at_once`` at the same time; 0
        lets no other begin. most: those that are the next to get a plan of finals; None for all."""
        return Openings()

    @property
    def stays(self) -> bool:
        """Whether one plan of screening after another costs no more than both at once: nothing is started for it."""
        return False

    def cancel(self) -> None:
        """Ends what runs, from another thread."""
        return None

    def close(self) -> None:
        """Leaves the GPU to others. The next plan opens it again."""
        return None


class Launcher(Timer, Checker, Protocol):
    """A GPU, or a recording of one."""

    def prepare_finals(self, count: int) -> None:
        """Starts or ends processes for plans of finals, without touching the GPU, so that ``count`` wait for one."""
        return None

    def prepare_check(self) -> None:
        """Starts a process for the next plan of a check, without touching the GPU."""
        return None

    def open_check(self, plan: Plan) -> None:
        """Lets what waits for the plan of a check open the GPU, for one of this plan's problems."""
        return None

    @property
    def overlaps(self) -> bool:
        """Whether several threads may call ``timings`` at once: what surrounds the work on the GPU then overlaps."""
