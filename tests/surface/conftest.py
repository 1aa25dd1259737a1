"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import tilelang_stand_in as stand_in


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    stand_in.BUILT.clear()
    return tmp_path / "cache"
