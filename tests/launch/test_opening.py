"""Opening the GPU before there is a plan: what it finds no room for is left to the plan, and what it took is freed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemm_tuner.launch import opening
from gemm_tuner.launch.plan import FINALS, Method, Plan
from gemm_tuner.launch.processor import Cpu

PLAN = Plan(FINALS, (), (), Method(), device="cpu")
NO_ROOM = RuntimeError("CUDA out of memory. Tried to allocate 9.00 GiB")


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices whose memory was freed."""
    found: list[str] = []

    class Noted(Cpu):
        def free_memory(self) -> None:
            found.append(self.name)

    monkeypatch.setattr(opening, "processor_of", lambda device: Noted())
    return found


@pytest.mark.parametrize("error", [None, NO_ROOM])
def test_what_was_taken_is_freed_also_where_it_was_not_enough(
    error: Exception | None, freed: list[str], tmp_path: Path
) -> None:
    """The launcher that times needs it, and says itself what it has no room for."""

    def make() -> None:
        assert not freed
        if error:
            raise error

    opening.open_ahead(PLAN, tmp_path / "opening.json", None, make)
    assert len(freed) == 1


@pytest.mark.usefixtures("freed")
def test_another_error_ends_the_launcher(tmp_path: Path) -> None:
    def make() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal"):
        opening.open_ahead(PLAN, tmp_path / "opening.json", None, make)
