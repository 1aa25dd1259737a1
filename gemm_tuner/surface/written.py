"""Finds which inputs a call writes to, and keeps their previous contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gemm_tuner.kernels.compare import CHUNK
from gemm_tuner.kernels.copies import copied
from gemm_tuner.surface.gpu import wait


@dataclass(frozen=True)
class Written:
    """places: indices of the inputs that a call writes to. before: their previous contents."""

    places: tuple[int, ...] = ()
    before: tuple[Any, ...] = ()

    def restore(self, inputs: Sequence[Any], places: Sequence[int] | None = None) -> None:
        for place, content in zip(self.places, self.before, strict=True):
            if places is None or place in places:
                inputs[place].copy_(content)


def written_by(run: Callable[[Sequence[Any]], Any], inputs: Sequence[Any]) -> tuple[Any, Written]:
    """Calls ``run`` with the inputs; returns (its return value, the inputs that it wrote). ``restore`` restores their
    contents.

    If no input changed, the call may have written the same values; then each float input is filled with NaN in turn to
    see whether it is overwritten. The original tensors are used, because copies could have other strides.
    """
    before = [copied(one) for one in inputs]
    returned = run(inputs)
    wait()
    places = tuple(place for place, one in enumerate(inputs) if not _same(one, before[place]))
    if returned is None and not places:
        places = tuple(place for place in range(len(inputs)) if _is_filled_in(run, inputs, place, before[place]))
        run(inputs)
        wait()
    return returned, Written(places, tuple(before[place] for place in places))


def _is_filled_in(run: Callable[[Sequence[Any]], Any], inputs: Sequence[Any], place: int, before: Any) -> bool:
    """Whether a call overwrites an input that was filled with NaN by its previous values."""
    one = inputs[place]
    if not one.is_floating_point() or bool(before.isnan().any()):
        return False
    try:
        one.fill_(float("nan"))
        run(inputs)
        wait()
        return _same(one, before)
    finally:
        one.copy_(before)


def _same(one: Any, other: Any) -> bool:
    """Whether the values are equal, with NaN equal to NaN. The other may lie in the host's memory."""
    one, other = one.reshape(-1), other.reshape(-1)
    return all(_same_piece(one[at : at + CHUNK], other[at : at + CHUNK]) for at in range(0, one.numel(), CHUNK))


def _same_piece(one: Any, other: Any) -> bool:
    import torch

    other = other.to(one.device)
    if one.dtype.is_floating_point:
        return bool(torch.isclose(one.to(torch.float64), other.to(torch.float64), 0, 0, equal_nan=True).all())
    return bool((one == other).all())
