"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_commands import Commands
from samples import ROOT


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run lies in the folder where it is started."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def with_few_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the sources in place of all, which each of some hundred starts would read twice."""
    monkeypatch.setattr("gemm_tuner.pipeline.run_identity.PACKAGE", ROOT / "gemm_tuner" / "decide")


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)
