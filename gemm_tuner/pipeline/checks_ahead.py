"""Checks finalists while the last processes of finals write their reports, when nothing else uses the GPUs.

What a check says of a configuration does not depend on its place in a ranking. So what is heard is kept until the
ranking is known, and then counts as if it was heard in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gemm_tuner.core.errors import CannotWrite, EnvironmentFault
from gemm_tuner.core.records import Problem
from gemm_tuner.launch.journal import Begin, End
from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure.launcher import Checker
from gemm_tuner.measure.launcher_events import Died, Heard
from gemm_tuner.pipeline.verify import Verification
from gemm_tuner.space.size_state import Named
from gemm_tuner.system.background import Background


@dataclass
class ChecksAhead:
    """plan: returns what is to be checked when the check begins, and the folder for it; None for nothing."""

    checker: Checker
    plan: Callable[[], tuple[Plan, Path] | None]
    _heard: dict[tuple[Problem, str], list[Heard]] = field(default_factory=dict)
    _ended: set[tuple[Problem, str]] = field(default_factory=set)
    _background: Background = field(default_factory=partial(Background, "checks ahead"))
    _begun: bool = False

    def begin(self) -> None:
        """Begins the check beside the caller; does nothing when called again."""
        if not self._begun:
            self._begun = True
            self._background.begin(self._run)

    def _run(self) -> None:
        try:
            planned = self.plan()
            if planned is not None:
                self.checker.verdicts(*planned, self._hear)
        except (EnvironmentFault, KeyboardInterrupt) as fault:
            if isinstance(fault, CannotWrite):  # it has ended all launchers, those of the finals too
                raise
            # Without a GPU, or when the run is to end, the check of the run itself says so.

    def _hear(self, problem: Problem, event: Heard) -> None:
        key = problem, event.name
        if isinstance(event, Begin):  # again, where a process was killed
            self._heard.pop(key, None)
        self._heard.setdefault(key, []).append(event)
        if isinstance(event, (End, Died)):
            self._ended.add(key)

    def end(self) -> None:
        """Waits until what has begun has ended. Raises what it raised."""
        self._background.end()

    def tell(self, verification: Verification, order: Named) -> Named:
        """Tells a verification what was heard, of each size up to the first candidate of which nothing is known.
        Returns what is left to check. ``end`` must have been called."""
        left: Named = []
        for state, names in order:
            size = verification.sizes[state.problem]
            for name in names:
                key = state.problem, name
                if size.decided or key not in self._ended:
                    break
                for event in self._heard[key]:
                    verification.hear(state.problem, event)
            if not size.decided:
                left.append((state, list(size.left)))
        return left
