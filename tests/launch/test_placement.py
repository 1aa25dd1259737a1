"""Operands of a process lie elsewhere than those of another, and are the same."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from gemm_tuner.gemm.operands import Operands, make_operands
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.placement import ALIGNMENT_BYTES, PAGE_BYTES, Placement

SIZES = (
    GemmProblem(48, 32, 160, bias=True),
    GemmProblem(48, 32, 160, dtype_a="fp8_e4m3", dtype_b="fp8_e4m3", dtype_c="bf16", scaling="block"),
)


def tensors(operands: Operands) -> dict[str, torch.Tensor]:
    found: dict[str, Any] = {field.name: getattr(operands, field.name) for field in fields(operands)}
    return {name: one for name, one in found.items() if isinstance(one, torch.Tensor)}


def offsets(size: Any, process: int, seed: int = 0) -> list[int]:
    (moved,) = Placement(seed, process, "cpu").moved([make_operands(size, "randn", 0, "cpu")])
    return [one.storage_offset() * one.element_size() for one in tensors(moved).values()]


@pytest.mark.parametrize("size", SIZES)
def test_the_values_and_shapes_stay(size: Any) -> None:
    before = tensors(make_operands(size, "randn", 0, "cpu"))
    after = tensors(Placement(0, 3, "cpu").moved([make_operands(size, "randn", 0, "cpu")])[0])
    assert len(before) >= 4 and before.keys() == after.keys()
    for name, one in before.items():
        other = after[name]
        assert (other.shape, other.stride(), other.dtype) == (one.shape, one.stride(), one.dtype)
        assert torch.equal(other.view(torch.uint8), one.view(torch.uint8)), name


def test_offsets_differ_by_process_and_operand_and_keep_the_alignment() -> None:
    found = [offsets(SIZES[0], process) for process in range(1, 6)]
    assert len({tuple(one) for one in found}) == 5
    assert all(len(set(one)) > 1 and max(one) < PAGE_BYTES for one in found)
    assert all(offset % ALIGNMENT_BYTES == 0 for one in found for offset in one)


def test_the_same_process_of_the_same_seed_has_the_same_offsets() -> None:
    assert offsets(SIZES[0], 2) == offsets(SIZES[0], 2) != offsets(SIZES[0], 2, seed=1)


def test_a_tensor_that_does_not_fit_twice_stays_where_it_is() -> None:
    small = make_operands(SIZES[0], "randn", 0, "cpu")
    huge = torch.zeros(1, 1).expand(2**25, 2**25)  # one number, whose copy would take 4 PiB
    (moved,) = Placement(0, 1, "cpu").moved([replace(small, b=huge)])
    assert moved.b is huge and moved.a is not small.a and torch.equal(moved.a, small.a)


def test_the_first_process_leaves_them_where_they_are() -> None:
    operands = make_operands(SIZES[0], "randn", 0, "cpu")
    assert Placement(0, 0, "cpu").moved([operands])[0] is operands
