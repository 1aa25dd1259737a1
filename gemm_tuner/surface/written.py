"""Which of its inputs a call writes to, and what was in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gemm_tuner.surface.gpu import wait


@dataclass(frozen=True)
class Written:
    """places: of the inputs that a call writes to. before: their contents until then."""

    places: tuple[int, ...] = ()
    before: tuple[Any, ...] = ()

    def restore(self, inputs: Sequence[Any], places: Sequence[int] | None = None) -> None:
        for place, content in zip(self.places, self.before, strict=True):
            if places is None or place in places:
                inputs[place].copy_(content)


def written_by(run: Callable[[Sequence[Any]], Any], inputs: Sequence[Any]) -> tuple[Any, Written]:
    """Calls ``run`` with the inputs; what it returned, and which inputs it changed. Their contents are put back when
    they have been looked at: ``restore`` does it.

    A call that writes what was there already changes nothing: then each input of floats is filled with NaN in turn, to
    see what becomes of it. The very tensors are used and no copies, whose strides could be others.
    """
    before = [one.clone() for one in inputs]
    returned = run(inputs)
    wait()
    places = tuple(place for place, one in enumerate(inputs) if not _same(one, before[place]))
    if returned is None and not places:
        places = tuple(place for place in range(len(inputs)) if _is_filled_in(run, inputs, place, before[place]))
        run(inputs)
        wait()
    return returned, Written(places, tuple(before[place] for place in places))


def _is_filled_in(run: Callable[[Sequence[Any]], Any], inputs: Sequence[Any], place: int, before: Any) -> bool:
    """Whether an input of NaN comes back as it was."""
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
    """Whether the values are equal, NaN to NaN."""
    import torch

    if one.dtype.is_floating_point:
        return bool(torch.isclose(one.to(torch.float64), other.to(torch.float64), 0, 0, equal_nan=True).all())
    return bool((one == other).all())
