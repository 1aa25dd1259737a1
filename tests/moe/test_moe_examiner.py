"""Configurations of a layer that are checked in sequence: what they share is made once, and none is judged by what
another one did. Imports torch, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_moe_exact_operands import LAYERS, Kernel

from gemm_tuner.core.judges import SharingExaminer
from gemm_tuner.core.records import Verdict
from gemm_tuner.moe import cases, sorted_rows
from gemm_tuner.moe.cases import Cases, operand_bytes
from gemm_tuner.moe.check import check, examiner
from gemm_tuner.moe.launch import DOWN, PARTS, UP
from gemm_tuner.moe.operands import MoeOperands
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.reference import in_groups, references

# In fp16 the interpreter's operands are those that are kept, and no copies of wider types.
LAYER = LAYERS["fp16, bias"]
CONFIG = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
Effect = Callable[[MoeOperands], None]
# All of it is kept; what C must be, but no operands; nothing.
KEPT_BYTES = {"all": 2**33, "no operands": 2 * operand_bytes(LAYER) - 1, "nothing": 0}


class Kernels:
    """A workload and its script in one: kernels that compute C as they should, and then have an effect."""

    def __init__(self, **effects: Effect) -> None:
        self.effects = effects
        self.script: Any = SimpleNamespace(CONFIGS={name: {**CONFIG, "name": name} for name in effects})

    def launches(self, script: Any, config: Any, problem: MoeProblem, given: MoeOperands, *_: Any) -> list[Any]:
        effect = self.effects[config["name"]]

        def multiply() -> None:
            for part in () if effect is writes_nothing else PARTS:
                given.gemms[part].c.zero_()
                for rows, values, _ in references(given, part, wide=given.wide):
                    given.gemms[part].c[rows] = values.float().to(given.gemms[part].c.dtype)
            effect(given)

        return [("both", Kernel(multiply), (1,), (), {})]

    def of(self, layer: MoeProblem) -> SharingExaminer[Cases]:
        return examiner(self, layer, 0, "cpu")  # type: ignore[arg-type]

    def alone(self, layer: MoeProblem, name: str) -> Verdict:
        return check(self, self.script, layer, name, 0, "cpu")  # type: ignore[arg-type]


def nothing_else(given: MoeOperands) -> None: ...


def writes_nothing(given: MoeOperands) -> None: ...


def spoils_up(given: MoeOperands) -> None:
    given.gemms[UP].c[4, 5] += 3


def spoils_down(given: MoeOperands) -> None:
    given.gemms[DOWN].c[4, 5] += 3


def overwrites_a(given: MoeOperands) -> None:
    given.gemms[UP].a[2] = 1.0


def overwrites_exact_weights(given: MoeOperands) -> None:
    """Only where they are -1 and 1, which is after the random operands."""
    w = given.gemms[DOWN].w
    if bool((w.abs() == 1).all()):
        w[1] = w[2]


def overwrites_random_weights(given: MoeOperands) -> None:
    """Only these: exact ones may be written over them."""
    w = given.gemms[DOWN].w
    if not bool((w.abs() == 1).all()):
        w[1] = w[2]


def overwrites_router(given: MoeOperands) -> None:
    given.router.mul_(2.0)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("keeps", KEPT_BYTES)
def test_verdicts_are_those_of_separate_checks(monkeypatch: pytest.MonkeyPatch, name: str, keeps: str) -> None:
    monkeypatch.setattr(cases, "KEPT_BYTES", KEPT_BYTES[keeps])
    layer = LAYERS[name]
    kernels = Kernels(right=nothing_else, idle=writes_nothing, up=spoils_up, down=spoils_down, router=overwrites_router)
    order = ("right", "idle", "up", "right", "router", "down", "right")
    together = kernels.of(layer)
    found = [together.verdict(kernels.script, one) for one in order]
    alone = {one: kernels.alone(layer, one) for one in kernels.effects}
    assert found == [alone[one] for one in order]
    assert alone["right"].ok and not any(alone[one].ok for one in ("idle", "up", "down"))


@pytest.mark.parametrize(
    "damage", [overwrites_a, overwrites_random_weights, overwrites_exact_weights, overwrites_router]
)
@pytest.mark.parametrize("keeps", KEPT_BYTES)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_kernel_that_damages_its_operands_makes_no_other_one_wrong(
    monkeypatch: pytest.MonkeyPatch, damage: Effect, keeps: str, is_first: bool
) -> None:
    monkeypatch.setattr(cases, "KEPT_BYTES", KEPT_BYTES[keeps])
    kernels = Kernels(right=nothing_else, damaging=damage)
    together, before = kernels.of(LAYER), kernels.alone(LAYER, "right")
    assert before.ok
    if not is_first:
        assert together.verdict(kernels.script, "right") == before
    assert together.verdict(kernels.script, "damaging") == kernels.alone(LAYER, "damaging")
    assert together.verdict(kernels.script, "right") == before


def test_a_kernel_that_damages_the_reference_makes_no_other_one_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = cases.in_groups

    def kept(parts: Any) -> Any:
        made.append(list(original(parts)))
        return made[-1]

    def damages(given: MoeOperands) -> None:
        made[0][0][1][3, 4] += 1.0

    monkeypatch.setattr(cases, "in_groups", kept)
    kernels = Kernels(right=nothing_else, damaging=damages)
    together = kernels.of(LAYER)
    before = together.verdict(kernels.script, "right")
    together.verdict(kernels.script, "damaging")
    assert together.verdict(kernels.script, "right") == before and before.ok


@pytest.mark.parametrize(
    ("keeps", "operands", "expected"), [("all", 1, 2), ("no operands", 4, 2), ("nothing", 4, 2 * 4)]
)
def test_what_configurations_share_is_made_once_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch, keeps: str, operands: int, expected: int
) -> None:
    """Four configurations; operands are counted where they are made, and so is what C of each GEMM must be."""
    counts = dict.fromkeys(("make", "made_exact", "references", "exact"), 0)

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(cases, name)

        def call(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return original(*given, **more)

        return call

    for name in counts:
        monkeypatch.setattr(cases, name, counted(name))
    monkeypatch.setattr(cases, "KEPT_BYTES", KEPT_BYTES[keeps])
    kernels = Kernels(**dict.fromkeys("abcd", nothing_else))
    together = kernels.of(LAYER)
    assert all(together.verdict(kernels.script, name).ok for name in "abcd")
    assert counts == {"make": operands, "made_exact": operands, "references": expected, "exact": expected}


def test_rows_by_place_have_a_reference_of_their_own() -> None:
    """Kernels of rows that are sorted by expert take the second GEMM's A in that order."""
    case = Cases(LAYER, 0, "cpu", kept=True).random()
    by_place = sorted_rows.in_row_order(case.operands)
    for _ in range(2):
        for operands, is_by_place in ((case.operands, False), (by_place, True)):
            for part in PARTS:
                found = case.references(operands, part, by_place=is_by_place, wide=False, activated=False)
                anew = in_groups(references(operands, part, wide=False))
                for group, right in zip(found, anew, strict=True):
                    assert all(torch.equal(one, other) for one, other in zip(group, right, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_no_more_is_kept_than_is_reckoned(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    layer = replace(LAYERS[name], M=256)
    largest = 2 * operand_bytes(layer) + 5 * 8 * layer.rows * layer.N
    monkeypatch.setattr(cases, "KEPT_BYTES", largest)
    kernels = Kernels(right=nothing_else)
    together = kernels.of(layer)
    together.verdict(kernels.script, "right")
    kept = together._shared
    assert kept is not None and kept._expectations is not None
    assert kept._expectations._found, "there is room for some"
    seals = [*kept._seals.values(), *kept._expectations.seals]
    tensors = {id(one): one for seal in seals for one in seal._tensors}
    tensors.update({id(gemm.c): gemm.c for one in kept._sets.values() for gemm in one.gemms.values()})
    held_bytes = sum(one.numel() * one.element_size() for one in tensors.values())
    assert 0.3 * largest < held_bytes <= largest
