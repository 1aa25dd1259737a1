"""Seals of tensors show every write. Imports torch, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from gemm_tuner.languages import seal
from gemm_tuner.languages.seal import Seal, are_intact

torch = pytest.importorskip("torch")

TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8)
SHAPES = ((1,), (3, 5), (64, 300), (2, 1023, 7))


def filled(shape: tuple[int, ...], kind: Any) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).mul(16).to(kind)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_one_element_that_is_overwritten_shows(kind: Any, shape: tuple[int, ...]) -> None:
    for at in (0, -1, filled(shape, kind).numel() // 2):
        one, other = filled(shape, kind), filled((7, 9), kind)
        seals = [Seal([other, None]), Seal([other, one])]
        assert are_intact(seals)
        flat = one.view(-1).view(torch.uint8)
        flat[at] ^= 1
        assert not are_intact(seals) and are_intact(seals[:1])
        flat[at] ^= 1
        assert are_intact(seals), "as before"


@pytest.mark.parametrize("rearranged", [lambda x: x.flip(0), lambda x: x.flip(1), lambda x: x.roll(1, 0)])
def test_elements_that_trade_places_show(rearranged: Any) -> None:
    one = filled((64, 2048), torch.float32)
    seal = Seal([one])
    one.copy_(rearranged(one.clone()))
    assert not are_intact([seal])


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
def test_signs_that_are_changed_show(kind: Any) -> None:
    """Of all elements, and of one in four: the highest bits of long words."""
    for step in (1, 2, 4):
        one = filled((8, 4096), kind)
        seal = Seal([one])
        one[:, step - 1 :: step].neg_()
        assert not are_intact([seal])


def test_a_matrix_that_is_transposed_in_place_shows() -> None:
    one = filled((512, 512), torch.bfloat16)
    seal = Seal([one])
    one.copy_(one.t().clone())
    assert not are_intact([seal])


def test_bits_are_summed_and_no_values() -> None:
    """A tensor of NaN equals itself."""
    one = torch.full((40, 50), float("nan"))
    seal = Seal([one])
    assert are_intact([seal])
    one[3, 4] = 0.0
    assert not are_intact([seal])


def test_a_tensor_with_gaps_is_read_too() -> None:
    one = filled((64, 300), torch.float32)
    seal = Seal([one.t()])
    assert are_intact([seal]) and not bool(seal.is_broken())
    one[5, 6] += 1
    assert not are_intact([seal]) and bool(seal.is_broken())


def test_one_element_of_any_stride_shows() -> None:
    """A column of a table of one row is contiguous, whatever its stride."""
    table = filled((1, 40), torch.float32)
    one = table[:, 3]
    assert one.is_contiguous() and one.stride() != (1,)
    seal = Seal([one])
    table[0, 2] = table[0, 4] = 7
    assert are_intact([seal])
    table[0, 3] += 1
    assert not are_intact([seal])


@pytest.mark.parametrize("count", [2**16, 2**16 + 1])
def test_a_large_tensor_is_read_in_pieces(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum in 64 bits first copies what it adds up: of weights that fill half of a GPU, twice as much as they take."""
    monkeypatch.setattr(seal, "PIECE", 2 * seal.ROW)
    one = torch.zeros(count, dtype=torch.uint8)
    profile, activity = torch.profiler.profile, torch.profiler.ProfilerActivity.CPU
    with profile(activities=[activity], profile_memory=True) as made:
        whole = Seal([one])
    assert max(event.cpu_memory_usage for event in made.events()) <= 8 * seal.PIECE
    for at in (0, 5 * seal.ROW, count - 1):
        one[at] = 1
        assert not are_intact([whole])
        one[at] = 0
    assert are_intact([whole])


def test_nothing_is_intact() -> None:
    assert are_intact([])
