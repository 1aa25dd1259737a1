"""Bitwise comparison of several tensors with one, in pieces. Imports torch, on the CPU."""

from __future__ import annotations

import math

import pytest

from gemm_tuner.languages import bits
from gemm_tuner.languages.bits import Comparisons, Difference, first_difference

torch = pytest.importorskip("torch")

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.float8_e4m3fn)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("chunk", [2**24, 7])
@pytest.mark.parametrize("place", [(0, 0), (2, 3), (4, 5)])
def test_the_first_tensor_that_differs_is_found_though_it_is_overwritten_at_once(
    monkeypatch: pytest.MonkeyPatch, kind: torch.dtype, chunk: int, place: tuple[int, int]
) -> None:
    monkeypatch.setattr(bits, "CHUNK", chunk)
    one = torch.arange(30).reshape(5, 6).to(kind)
    other, comparisons = one.clone(), Comparisons(one)
    for turn in range(4):
        other.copy_(one)
        if turn >= 2:
            other[place] = 48 + 4 * turn
            other[4, 5] = 48 + 4 * turn
        comparisons.add(other)
        alone = first_difference(one, other)
        assert alone == (None if turn < 2 else place)
    assert comparisons.first() == Difference(2, place, 56.0)


@pytest.mark.parametrize("differs", [-0.0, math.nan])
def test_bits_are_compared_and_no_values(differs: float) -> None:
    one, other = torch.tensor([0.0, math.nan, 0.0]), torch.tensor([0.0, math.nan, differs])
    comparisons = Comparisons(one)
    comparisons.add(one.clone())
    assert comparisons.first() is None
    comparisons.add(other)
    found = comparisons.first()
    assert found is not None and (found.which, found.index) == (1, (2,))
    assert math.copysign(1, found.value) == math.copysign(1, differs) or math.isnan(differs)


def test_nothing_was_compared() -> None:
    assert Comparisons(torch.zeros(3)).first() is None
