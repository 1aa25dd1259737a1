"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pool_tasks import good_tasks, pool_in, run


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has what the good tasks compile to."""
    folder = tmp_path_factory.mktemp("known")
    run(pool_in(folder, workers=1), good_tasks(folder))
    return folder / "cache"
