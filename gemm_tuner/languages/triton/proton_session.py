"""Proton, the profiler in Triton, inside the process whose kernels it records (CUPTI, roctracer).

Importing this module imports no Triton. ``profilers.proton`` reads what is written here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def is_there() -> bool:
    with contextlib.suppress(ImportError, ValueError):
        return find_spec("triton.profiler") is not None
    return False


def load() -> None:
    """Imports the profiler, which is slow, ahead of its first use."""
    import triton.profiler  # noqa: F401


@contextlib.contextmanager
def session(stem: Path) -> Iterator[None]:
    """A session while the block runs, written to ``stem`` plus proton's file ending."""
    import triton.profiler as proton

    proton.start(str(stem), data="trace")
    try:
        yield
    finally:
        proton.finalize()


@contextlib.contextmanager
def shadow_session(stem: Path) -> Iterator[None]:
    """As ``session``, beside other sessions of a program. Raises SessionFault if there can be none."""
    import triton.profiler as proton

    try:
        number = proton.start(str(stem), context="shadow", data="trace")
    except Exception as error:
        raise SessionFault(f"proton: {error}") from error
    if number is None:
        raise SessionFault("proton is off, or this process runs under its command line")
    try:
        yield
    finally:
        proton.finalize(int(number))


def scope(number: int) -> Any:
    """A context whose kernels are recorded as those of one call."""
    import triton.profiler as proton

    return proton.scope(f"L{number}")


class SessionFault(Exception):
    """No session can be started in this process."""
