"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run lies in the folder where it is started."""
    monkeypatch.chdir(tmp_path)
