"""The GPU at hand, for all tests here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_work import Gpu

from gemm_tuner.core.language import language_of
from gemm_tuner.measure.device import look, measured_device
from gemm_tuner.space import space

RULES = Path(__file__).resolve().parents[2] / "rules"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder: one without the mark would never run, or would fail where there is no GPU."""
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def unchanged_environment() -> Iterator[None]:
    """torch.compile sets TRITON_CACHE_DIR for the whole process; the tests after it would compile again."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    machine = look()
    if not machine.gpus:
        pytest.skip("torch sees no GPU on this machine")
    row = machine.gpu(0)
    loaded = space.load(space.space_path(RULES, row["arch"]), row["arch"])
    language = language_of("triton")
    found = Gpu(measured_device(loaded.device, row), tmp_path_factory.mktemp("gpu"), language.start_launcher("cuda"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in language.environment(found.cache).items():
            patch.setenv(name, value)
        yield found
