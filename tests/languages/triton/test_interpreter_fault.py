"""Versions of Triton and NumPy with which the interpreter runs no kernels."""

from __future__ import annotations

import pytest

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.languages.triton.interpreter_fault import check_versions


@pytest.mark.parametrize(
    ("triton", "numpy", "runs"),
    [("3.6.0", "2.3.5", True), ("3.6.0+git1", "2.10.0rc1", False), ("3.7.0", "2.5.5", True), ("3.10", "2.4", True)],
)
def test_versions_that_do_not_go_together_are_named_with_what_does(triton: str, numpy: str, runs: bool) -> None:
    versions = {"triton": triton, "numpy": numpy}
    if runs:
        check_versions(versions.get)
        return
    with pytest.raises(EnvironmentFault) as raised:
        check_versions(versions.get)
    assert {triton, numpy} <= set(raised.value.what.split()) and raised.value.accepted and raised.value.hint


def test_what_is_not_installed_is_not_judged() -> None:
    check_versions({"numpy": "2.5.5"}.get)
