"""Inputs of kernels that are tuned: who is asked first, distributions, what cannot be made."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.supply import KernelParam, Supply, TensorSupplyType, given_inputs, set_autotune_inputs

MATRIX = KernelParam("x", "float32", (40, 50))
KINDS = TensorSupplyType


def made(kind: TensorSupplyType, dtype: str = "float32") -> torch.Tensor:
    (tensor,) = Supply(kind).inputs([KernelParam("x", dtype, (40, 50))], "f", "cpu")
    assert tensor.dtype == getattr(torch, dtype) and tuple(tensor.shape) == (40, 50)
    return tensor.to(torch.float64)


def test_distributions() -> None:
    assert made(KINDS.Zero).unique().tolist() == [0]
    assert made(KINDS.One).unique().tolist() == [1]
    assert made(KINDS.Integer).unique().tolist() == [-2, -1, 0, 1, 2]
    for kind in (KINDS.Uniform, KINDS.Auto):
        values = made(kind, "bfloat16")
        assert values.min() >= -1 and values.max() <= 1 and abs(values.mean()) < 0.1 and values.std() > 0.5
    randn, normal = made(KINDS.Randn), made(KINDS.Normal)
    assert abs(randn.mean()) < 0.1 and abs(randn.std() - 1) < 0.1
    assert abs(normal.mean() + 1) < 0.1 and abs(normal.std() - 1) < 0.1


@pytest.mark.parametrize(
    ("dtype", "values"),
    [("int8", {-2, -1, 0, 1, 2}), ("uint8", {0, 1, 2}), ("bool", {0, 1}), ("float8_e4m3fn", {-2, -1, 0, 1, 2})],
)
def test_small_integers_where_a_type_holds_no_fractions(dtype: str, values: set[int]) -> None:
    assert set(made(KINDS.Auto, dtype).unique().tolist()) == values
    if not dtype.startswith("float"):
        assert len(made(KINDS.Uniform, dtype).unique()) > 1


def test_random_inputs_are_equal_from_call_to_call_and_differ_within_one() -> None:
    one, other = (Supply().inputs([MATRIX, MATRIX], "f", "cpu") for _ in range(2))
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    assert not torch.equal(one[0], one[1])


def test_given_inputs_go_before_a_program_and_that_before_a_distribution() -> None:
    from_program, given = torch.ones(1), torch.ones(2)
    supply = Supply(KINDS.Zero, lambda params: [from_program], (given,))
    with pytest.warns(UserWarning, match="supply_prog and supply_type"):
        supply.warn_of_unused()
    assert supply.inputs([MATRIX], "f")[0] is given
    supply = Supply(KINDS.Zero, lambda params: [from_program])
    with pytest.warns(UserWarning, match="supply_type"):
        supply.warn_of_unused()
    assert supply.inputs([MATRIX], "f")[0] is from_program
    Supply(KINDS.Zero).warn_of_unused()
    Supply(given=(given,)).warn_of_unused()


def test_what_a_program_draws_is_equal_from_call_to_call_and_takes_nothing_from_the_caller() -> None:
    def draw(*_: object) -> list[float]:
        return [torch.rand(1).item(), float(np.random.rand()), random.random()]

    supply = Supply(program=draw)
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    own = draw()
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    one, other = supply.inputs(None, "f"), supply.inputs(None, "f")
    assert one == other != own
    assert draw() == own


def test_no_gpu_but_the_current_one_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states of others are not kept, so that they could not go on afterwards."""
    seeded = list[int]()
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    assert len({Supply(program=lambda: [torch.rand(1).item()]).inputs(None, "f")[0] for _ in range(2)}) == 1
    assert not seeded


def test_a_program_gets_what_is_known_of_the_arguments_or_nothing() -> None:
    (param,) = Supply(program=lambda params: params).inputs([MATRIX], "f")
    assert (param.name, param.dtype, param.shape) == ("x", "float32", (40, 50))
    assert Supply(program=lambda: [7]).inputs([MATRIX], "f") == [7]


@pytest.mark.parametrize(
    ("param", "says"),
    [
        (KernelParam("scale", "float32", ()), "scale is a scalar"),
        (KernelParam("rows", "float16", ("M", 8)), r"rows has a shape that is not static \(M\)"),
        (KernelParam("packed", "float8_e9m9", (8,)), "packed .* PyTorch 2.1"),
    ],
)
def test_what_no_distribution_gives_is_named(param: KernelParam, says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        Supply().inputs([MATRIX, param], "f", "cpu")
    assert "set_autotune_inputs" in raised.value.hint


def test_unknown_arguments_need_given_inputs() -> None:
    with pytest.raises(UserError, match="matmul") as raised:
        Supply().inputs(None, "matmul")
    assert "set_autotune_inputs" in raised.value.hint


def test_blocks_of_given_inputs_nest_and_threads_see_them() -> None:
    outer, inner, of_a_thread = torch.ones(1), torch.ones(2), torch.ones(3)
    seen: dict[str, object] = {}

    def look() -> None:
        seen["none of its own"] = given_inputs()
        with set_autotune_inputs(of_a_thread):
            seen["its own"] = given_inputs()

    assert given_inputs() is None
    with set_autotune_inputs([outer]):
        with set_autotune_inputs(inner, outer):
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            assert (given_inputs() or ())[0] is inner
        assert (given_inputs() or ())[0] is outer
    assert given_inputs() is None
    assert [one.data_ptr() for one in seen["none of its own"]] == [inner.data_ptr(), outer.data_ptr()]
    assert seen["its own"] == (of_a_thread,)
