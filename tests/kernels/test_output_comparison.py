"""What counts as right: tolerances, relative RMS, a share of mismatches, what most compute, the user's own check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gemm_tuner.kernels import compare
from gemm_tuner.kernels.check import judged_by
from gemm_tuner.kernels.compare import Groups, compared, unwritten
from gemm_tuner.kernels.kernel_spec import Check, Function


def found(check: Check, actual: Any, wanted: Any) -> tuple[bool, str]:
    one = compared(check, {"out": actual}, {"out": wanted})
    assert one.ok == (not one.message)
    return one.ok, one.message


def test_a_share_of_elements_may_be_beyond_the_tolerance_but_not_infinite() -> None:
    wanted = torch.ones(1000)
    for wrong, right in ((9, True), (10, True), (11, False)):
        actual = wanted.clone()
        actual[:wrong] = 1.5
        assert found(Check(max_mismatched_ratio=0.01), actual, wanted)[0] is right
        assert not found(Check(), actual, wanted)[0]
    actual = wanted.clone()
    actual[3] = float("nan")
    ok, message = found(Check(max_mismatched_ratio=0.01), actual, wanted)
    assert not ok and message.startswith("out[3] is nan")


def test_what_an_absolute_tolerance_hides_the_relative_rms_finds() -> None:
    """The probabilities of a long softmax are all below the absolute tolerance: zeros would pass."""
    wanted = torch.softmax(torch.randn(4096, generator=torch.Generator().manual_seed(0)), 0)
    zeros = torch.zeros(4096, dtype=torch.float16)
    check = Check(atol=1e-2, rtol=1e-2)
    ok, message = found(check, zeros, wanted)
    assert not ok and "relative RMS of 1," in message
    assert found(check, wanted.half(), wanted)[0]
    assert found(Check(atol=1e-2, rtol=1e-2, rms=2.0), zeros, wanted)[0]


def test_integers_are_exact_and_infinities_must_be_the_same() -> None:
    assert found(Check(), torch.tensor([1000000]), torch.tensor([1000000]))[0]
    assert not found(Check(), torch.tensor([1000001]), torch.tensor([1000000]))[0]
    for made in (np.array, torch.tensor):  # a double holds 53 bits
        wanted = made([[2**60, 2**60]])
        assert found(Check(), wanted + 0, wanted)[0] and found(Check(), wanted + 0, wanted * 1.0)[0]
        assert found(Check(), wanted + made([0, 1]), wanted) == (False, f"out[1] is {2**60:.6g}, not {2**60:.6g}")
        assert found(Check(atol=1.0), wanted + made([0, 1]), wanted)[0]
    inf = float("inf")
    assert found(Check(), torch.tensor([inf, -inf, 1.0]), torch.tensor([inf, -inf, 1.0]))[0]
    assert not found(Check(), torch.tensor([inf, 1.0]), torch.tensor([-inf, 1.0]))[0]


@pytest.mark.parametrize("made", [np.array, torch.tensor])
@pytest.mark.parametrize(
    ("actual", "wanted", "right"),
    [(5.0, 0.0, True), (np.nan, 0.0, False), (np.inf, 0.0, False), (0.0, np.inf, False), (np.inf, np.inf, True)],
)
def test_no_share_excuses_an_element_that_was_never_written(
    made: Any, actual: float, wanted: float, right: bool
) -> None:
    result, expected = np.zeros((2, 500)), np.zeros((2, 500))
    result[0, 3], result[1, 7], expected[1, 7] = 5, actual, wanted
    ok, message = found(Check(max_mismatched_ratio=0.01, rms=np.inf), made(result), made(expected))
    assert ok is right and (right or f"[507] is {actual:g}, not {wanted:g}" in message)


@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_outputs_of_other_shapes_or_names_are_wrong_even_where_one_spreads_over_the_other(made: Any) -> None:
    one, eight = made([1.0]), made([1.0] * 8)
    assert not found(Check(), one, eight)[0] and not found(Check(), eight, one)[0]
    assert not compared(Check(), {"out": one}, {"out": one, "more": one}).ok
    assert not compared(Check(), {"out": one, "more": one}, {"out": one}).ok
    assert not compared(Check(), {"other": one}, {"out": one}).ok


def test_numbers_arrays_tensors_and_types_may_be_mixed() -> None:
    for one in (3, 3.0, np.float32(3), np.array(3), torch.tensor(3), torch.tensor(3.0, dtype=torch.bfloat16)):
        assert found(Check(rtol=0.0, atol=0.0), one, 3)[0] and not found(Check(rtol=0.0, atol=0.0), one, 4)[0]
    assert found(Check(), np.array([1 + 2j]), np.array([1 + 2j]))[0]
    assert not found(Check(), torch.tensor([1 + 2j]), torch.tensor([1 - 2j]))[0]
    assert found(Check(), np.zeros((0, 3)), np.zeros((0, 3)))[0]


def grouped(**values: float) -> Groups:
    """A group is known by the first of its members; the buffer that the caller reuses is not."""
    groups, buffer = Groups(lambda outputs: {name: one.copy() for name, one in outputs.items()}), np.zeros(2)
    for name, value in values.items():
        buffer[1] = value
        groups.join(name, {"out": buffer}, Check(atol=0.1, rms=1.0))
    return groups


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ({"a": 2.0, "b": 2.05, "c": 3.0}, ["a", "b"]),
        ({"a": 3.0, "b": 2.0, "c": 2.0}, ["b", "c"]),
        ({"a": 3.0, "b": 2.0}, None),
        ({"a": 3.0, "b": 3.0, "c": 2.0, "d": 2.0}, None),
        ({"a": 3.0}, None),
        ({}, None),
    ],
)
def test_what_most_compute_is_right(values: dict[str, float], right: list[str] | None) -> None:
    groups = grouped(**values)
    largest = groups.largest()
    assert (largest.names if largest else None) == right
    assert not any(groups.fault(one).ok for one in groups.groups if one is not largest)


@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_what_still_holds_nan_was_not_written(made: Any) -> None:
    def fault(**outputs: Any) -> str:
        one = unwritten(outputs)
        return one.message if one else ""

    assert not fault(out=made([1.0, np.inf]), count=made([1, 2]), number=3.0)
    assert "2 elements of late" in fault(out=made([1.0]), late=made([np.nan, 1.0, np.nan]))


@pytest.mark.parametrize(
    ("body", "ok", "words"),
    [
        ("assert (out == x).all(), 'differs'", False, "AssertionError: differs"),
        ("return bool((out == x).all())", False, "says False"),
        ("return None", True, ""),
        ("assert len(results) == 1 and results[0] is out", True, ""),
    ],
)
def test_the_users_own_check_raises_or_says_false(body: str, ok: bool, words: str) -> None:
    function = Function("judge", f"def judge(x, out, results):\n    {body}\n", ("x", "out", "results"))
    one = judged_by(function, {"out": torch.ones(2)}, {"x": torch.zeros(2), "out": torch.zeros(2)})
    assert one.ok is ok and words in one.message


@pytest.mark.parametrize("kind", ["right", "one", "share", "infinite", "rms", "integers"])
@pytest.mark.parametrize("ratio", [0.0, 0.2])
def test_large_outputs_are_compared_in_pieces(kind: str, ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = torch.randn(10, 10, generator=torch.Generator().manual_seed(0))
    if kind == "integers":
        wanted = 2**60 + torch.arange(100).reshape(10, 10)
    actual = wanted.clone()
    if kind == "rms":
        actual += 1e-3 * wanted.abs().max()
    elif kind != "right":
        actual.view(-1)[[57] if kind in ("one", "integers") else [3, 57, 58, 99]] += 1
        actual.view(-1)[57] = actual.view(-1)[57] if kind != "infinite" else float("inf")
    check = Check(max_mismatched_ratio=ratio, atol=1.0 if kind == "rms" else None)
    whole = compared(check, {"out": actual}, {"out": wanted})
    monkeypatch.setattr(compare, "CHUNK", 7)
    pieces = compared(check, {"out": actual}, {"out": wanted})
    assert pieces.over == pytest.approx(whole.over) and replace(pieces, over=whole.over) == whole
    assert whole.ok == (kind == "right" or (ratio > 0 and kind in ("one", "share", "integers")))
