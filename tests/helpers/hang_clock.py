"""Time limits that are over as soon as something hangs, and never before, however slow the machine is.

What hangs says so by ``hang``, in any process; a ``HangClock``, in the place of the module ``time`` of the code that
watches, then goes on by JUMP_S at once. So limits are LIMIT_S, which nothing else comes to.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Any

NOTES = "HANG_NOTES"
LIMIT_S = 1000.0
JUMP_S = 1e6
# Looks at the clock from the first that finds a note to the jump: what was written before the note is read meanwhile.
LOOKS = 6


def note() -> None:
    """Says that what follows hangs, where somebody wants to know."""
    if NOTES in os.environ:
        (Path(os.environ[NOTES]) / secrets.token_hex(8)).touch()


def hang() -> None:
    note()
    time.sleep(3600)


class HangClock:
    """notes: a folder, in the variable NOTES of all processes."""

    def __init__(self, notes: Path) -> None:
        notes.mkdir(exist_ok=True)
        self._notes, self._seen = notes, Counter({path.name: LOOKS for path in notes.iterdir()})

    def monotonic(self) -> float:
        self._seen.update(path.name for path in self._notes.iterdir())
        return time.monotonic() + JUMP_S * sum(looks > LOOKS for looks in self._seen.values())

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)
