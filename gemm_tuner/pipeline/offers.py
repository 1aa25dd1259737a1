"""Chooses what compile workers are offered, beside the timing of what they have compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from gemm_tuner.core.records import Problem
from gemm_tuner.measure.launcher_events import Heard, OnEvent
from gemm_tuner.system.background import Background


def nothing() -> None:
    """As a choice: none."""


@dataclass
class Offers:
    """choose: what is done when something is next being timed. Not before: launchers would wait for their plans, which
    one interpreter writes."""

    choose: Callable[[], None] = nothing
    _background: Background = field(default_factory=partial(Background, "choice of what to compile ahead"))

    @contextmanager
    def chosen_beside(self, first: Callable[[], None] = nothing) -> Iterator[Callable[[OnEvent], OnEvent]]:
        """A block that times. From its first event on, or its end, ``first`` and then ``choose`` run beside it and what
        follows it. Yields what makes the ``OnEvent`` of the launchers."""
        begun, choose = threading.Event(), self.choose
        self.choose = nothing

        def heard_by(on_event: OnEvent) -> OnEvent:
            def hear(problem: Problem, event: Heard) -> None:
                begun.set()
                on_event(problem, event)

            return hear

        def when_begun() -> None:
            begun.wait()
            first()
            choose()

        self._background.begin(when_begun)
        try:
            yield heard_by
        finally:
            begun.set()

    def wait(self) -> None:
        """Waits until the last choice has been made."""
        self._background.wait()

    def end(self) -> None:
        """``wait``; raises what the choice raised."""
        self._background.end()
