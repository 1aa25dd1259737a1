"""A station on another machine, seen from here: calls that answer later, and may never answer."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol


class WorkerLost(Exception):
    """The process that was called, or its machine, is gone."""


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
