"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import NO_GPU

from gemm_tuner.measure import device as devices


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a GPU, in an empty folder."""
    monkeypatch.setattr(devices, "look", lambda: NO_GPU)
    monkeypatch.chdir(tmp_path)
