"""What counts as right: tolerances, relative RMS, a share of mismatches, the user's own check."""

from __future__ import annotations

import pytest
import torch

from gemm_tuner.kernels.check import judged_by
from gemm_tuner.kernels.compare import compared
from gemm_tuner.kernels.kernel_spec import Check, Function


def found(check: Check, actual: torch.Tensor, wanted: torch.Tensor) -> tuple[bool, str]:
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
    inf = float("inf")
    assert found(Check(), torch.tensor([inf, -inf, 1.0]), torch.tensor([inf, -inf, 1.0]))[0]
    assert not found(Check(), torch.tensor([inf, 1.0]), torch.tensor([-inf, 1.0]))[0]


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
