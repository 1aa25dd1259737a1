"""The end of a process that has nothing left to do."""

from __future__ import annotations

import atexit
import gc
import os


def end_quickly() -> None:
    """Lets this process end without looking through its objects, which takes 0.4 s of the 0.5 that a process with torch
    and Triton takes to end (2 cores, Python 3.11). Nothing is heard of libraries that then report them as leaks."""
    gc.freeze()
    atexit.register(os.dup2, os.open(os.devnull, os.O_WRONLY), 2)
