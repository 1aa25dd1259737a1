"""A station on another machine, seen from here: calls that answer later, and may never answer."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol


class WorkerLost(Exception):
    """The process that was called, or its machine, is gone, as the text says. why: how that is known, if not by the
    carrier of the calls."""

    def __init__(self, why: str = "") -> None:
        gone = "its machine or process is gone"
        super().__init__(f"{gone}: {why}" if why else gone)


class Worker(Protocol):
    """name: unique in a run. node: the machine that it is on."""

    @property
    def name(self) -> str: ...

    @property
    def node(self) -> str: ...

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Calls a method of the station there. The future raises what the method raised, or WorkerLost."""

    def kill(self) -> None:
        """Ends the station and what it has started. Calls that are under way raise WorkerLost."""
