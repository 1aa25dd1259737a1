"""Times kernels with the host's clock instead of a profiler, for CPU kernels, which have ended when the call
returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# In the folder of the plan.
CLOCK_FILE = "clock.csv"
CLOCK_HEADER = "kernel_name,start_ns,duration_ns"


class HostClock:
    """Writes one line per kernel as it runs, so that a crash loses nothing. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("w", encoding="utf-8", buffering=1)
        self._stream.write(f"{CLOCK_HEADER}\n")

    def __enter__(self) -> HostClock:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def time(self, symbol: str, start: Callable[..., Any], *positional: Any, **options: Any) -> None:
        """Calls ``start`` and writes its start time and duration."""
        began_ns = time.perf_counter_ns()
        start(*positional, **options)
        ended_ns = time.perf_counter_ns()
        self._stream.write(f"{symbol},{began_ns},{ended_ns - began_ns}\n")
