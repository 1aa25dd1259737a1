"""Kernels of the small space, compiled once for all tests here, and a run that nothing disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fault_runs import MEASURED, PREDICTED, Machine, Outcome, require_accounts, rows_of, with_stand_in_gpu


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("triton_cache")


@dataclass(frozen=True)
class Undisturbed:
    outcome: Outcome
    rows: dict[str, Any]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Undisturbed:
    """A run with a stand-in for the GPU."""
    machine = with_stand_in_gpu(tmp_path_factory.mktemp("undisturbed") / "run", cache)
    outcome = machine.run(*MEASURED)
    assert outcome.status == 0, outcome.err
    require_accounts(machine)
    return Undisturbed(outcome, rows_of(machine))


@pytest.fixture(scope="session")
def predicted(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Undisturbed:
    """A run without a GPU."""
    machine = Machine(tmp_path_factory.mktemp("predicted") / "run", cache)
    outcome = machine.run(*PREDICTED)
    assert outcome.status == 0, outcome.err
    return Undisturbed(outcome, rows_of(machine))


@pytest.fixture
def machine(tmp_path: Path, cache: Path) -> Iterator[Machine]:
    """A machine with a stand-in for the GPU; nothing may be left running on it."""
    made = with_stand_in_gpu(tmp_path / "run", cache)
    yield made
    assert made.orphans() == []
