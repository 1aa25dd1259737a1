"""Which calls share a result: arguments that hold others count as they are at the call."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gemm_tuner.surface.call_keys import CallKeys


class Plain:
    def __init__(self, held: Any) -> None:
        self.held = held


@dataclass
class Compared:
    held: Any


@dataclass(frozen=True)
class Frozen:
    held: Any


@dataclass(eq=False)
class ById:
    held: Any


def listed(held: Any) -> list[Any]:
    return [held]


def mapped(held: Any) -> dict[str, Any]:
    return {"held": held}


HOLDERS = [
    listed,
    mapped,
    lambda held: (held,),
    deque,
    Plain,
    Compared,
    Frozen,
    ById,
    lambda held: SimpleNamespace(x=held),
]


@pytest.mark.parametrize("holder", [lambda held: held, *HOLDERS])
@pytest.mark.parametrize("key", [None, ["value"], lambda named: named["value"]])
def test_a_container_that_was_changed_is_another_argument(holder: Callable[[Any], Any], key: Any) -> None:
    keys = CallKeys(key, ("value",))
    held: list[Any] = [[1]] if holder is deque else [1]
    value = holder(held)
    results = {keys.of({"value": value}): "first"}
    assert results.get(keys.of({"value": value})) == "first"
    (held[0] if holder is deque else held).append(2)
    if not (callable(key) and holder in (Plain, ById)):  # what a key function returns is its own affair
        assert keys.of({"value": value}) not in results


def test_what_holds_itself_has_a_key() -> None:
    value: list[Any] = [1]
    value.append(Plain(value))
    keys = CallKeys(None, ("value",))
    assert keys.of({"value": value}) == keys.of({"value": value})


@pytest.mark.parametrize("key", [None, lambda named: [named["value"]]])
def test_modules_and_objects_that_share_others_have_short_keys(key: Any) -> None:
    """Whose content is followed once: 2^50 paths lead to the last object, and no end to a module's content."""
    keys, last = CallKeys(key, ("value",)), Plain([1])
    value = last
    for _ in range(50):
        value = Plain((value, value, math))
    before = keys.of({"value": value})
    assert keys.of({"value": value}) == before and len(repr(before)) < 20_000
    last.held.append(2)
    assert keys.of({"value": value}) != before
    assert keys.of({"value": math}) != keys.of({"value": torch})


def test_arrays_and_tensors_count_by_type_and_shape_wherever_they_are() -> None:
    keys = CallKeys(None, ("value",))

    def same(one: Any, other: Any) -> bool:
        return keys.of({"value": one}) == keys.of({"value": other})

    for zeros, ones in ((np.zeros, np.ones), (torch.zeros, torch.ones)):
        assert same(zeros(3), ones(3)) and same([zeros(3)], [ones(3)]) and same(Compared(zeros(3)), Compared(ones(3)))
        assert not same(zeros(3), zeros(4)) and not same(Compared(zeros(3)), Compared(zeros(4)))
    assert not same(np.float32(1), np.float32(2))
