"""What a run hears of its launchers while they work: events of their journals, and of what became of the launchers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.records import Problem
from gemm_tuner.launch.journal import Begin, End, Fail, Judged


@dataclass(frozen=True, slots=True)
class Died:
    """An event that is not in the journal: the check of a configuration crashed or hung."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Again:
    """An event that is not in the journal: results of a start were lost, so that configurations are timed again.

    count: number of configurations that had ended. reason: what happened, in one line. name: always empty, since it is
    no single configuration's event.
    """

    count: int
    reason: str
    name: str = ""


Heard = Begin | End | Fail | Judged | Died | Again
# A callback for events of configurations, called as they happen.
OnEvent = Callable[[Problem, Heard], None]


def ignore(*heard: Any) -> None:
    """An OnEvent that does nothing."""


def at_each_end(advance: Callable[[], None], again: Callable[[Again], None] = ignore) -> OnEvent:
    """A callback that calls ``advance`` whenever a configuration has ended or failed, and ``again`` when some of them
    are timed again."""

    def hear(problem: Problem, event: Heard) -> None:
        if isinstance(event, (End, Fail)):
            advance()
        elif isinstance(event, Again):
            again(event)

    return hear
