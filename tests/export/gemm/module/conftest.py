"""Fixtures of the tests in this folder."""

from __future__ import annotations

import pytest
from exported_modules import H200

from gemm_tuner.export.gemm.module import ModuleFile, write_module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ModuleFile:
    return write_module(H200, tmp_path_factory.mktemp("module") / "gemm.py")
