"""Kernels of the small space, compiled once for all tests here, and runs that nothing disturbed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_runs import (
    MEASURED,
    PREDICTED,
    ROOT,
    SMALL_SIZES,
    Machine,
    Undisturbed,
    require_complete_states,
    rows_of,
    with_stand_in_gpu,
)
from filelock import FileLock


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the session, whatever process of it asks."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "faults"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def cache(shared: Path) -> Path:
    return shared / "triton_cache"


def made_once(at: Path, make: Callable[[], Undisturbed]) -> Undisturbed:
    """What ``make`` gives, made by the first process of the session that asks."""
    with FileLock(at.with_suffix(".lock")):
        if not at.exists():
            at.write_bytes(pickle.dumps(make()))
        found = pickle.loads(at.read_bytes())
    assert isinstance(found, Undisturbed)
    return found


def ran(machine: Machine, *flags: str) -> Undisturbed:
    outcome = machine.run(*flags)
    assert outcome.status == 0, outcome.err
    require_complete_states(machine)
    return Undisturbed(machine, rows_of(machine))


@pytest.fixture(scope="session")
def undisturbed(shared: Path, cache: Path) -> Undisturbed:
    """A run with a stand-in for the GPU."""

    def make() -> Undisturbed:
        return ran(with_stand_in_gpu(shared / "undisturbed_run", cache), *MEASURED)

    return made_once(shared / "undisturbed", make)


@pytest.fixture(scope="session")
def predicted(shared: Path, cache: Path) -> Undisturbed:
    """A run without a GPU, of the command as a person calls it."""

    def make() -> Undisturbed:
        script = ROOT / "tune_gemm.py"
        return ran(Machine(shared / "predicted_run", cache, script=script, sizes=SMALL_SIZES), *PREDICTED)

    return made_once(shared / "predicted", make)


@pytest.fixture
def machine(tmp_path: Path, cache: Path) -> Iterator[Machine]:
    """A machine with a stand-in for the GPU; nothing may be left running on it."""
    made = with_stand_in_gpu(tmp_path / "run", cache)
    yield made
    assert made.orphans() == []
