"""Fixtures of the tests in this folder."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def only_cluster() -> Iterator[None]:
    """One test at a time, of whatever process, has a cluster of Ray: where Ray is given no address it joins one that
    runs on the machine."""
    with Path(tempfile.gettempdir(), "gemm_tuner-tests-ray.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
