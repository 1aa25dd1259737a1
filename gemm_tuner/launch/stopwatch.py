"""Adds up how long the parts of a launcher's work take on the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """seconds: by part, in the order in which the parts began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Adds the wall time of the block to a part, also where it raises."""
        self.seconds.setdefault(part, 0.0)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - began
