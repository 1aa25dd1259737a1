"""What a run says of a budget that is too short for it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Floor:
    """The shortest run, in seconds, and the profiler's start in it."""

    whole_s: float
    start_s: float


def announced_floor(said: str) -> Floor | None:
    """The floor that a run has announced; None for a budget that is long enough."""
    text = " ".join(said.split())
    found = re.search(r"is too short: .*?a profiler start \((\d+) s\).*? end after (\d+) s", text)
    return Floor(float(found[2]), float(found[1])) if found else None
