"""Checks of outputs, of a kernel in Python in the place of one in Triton: by a reference, by the user, or none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gemm_tuner.core.records import Verified
from gemm_tuner.decide.choose import how_verified
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.kernels.check import BadReference, Trial, check
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.kernels.workload import WORKLOAD

SOURCE = """
@triton.jit
def accumulate(x, total, ROWS):
    pass

def reference(x, rows, dtype):
    assert str(dtype) == "torch.float64" and x.shape == (rows,)
    return x.to(dtype) + 1

def taking(x, m, n=1):
    return x

def longer(x):
    return x.repeat(2)

def judge(total, results):
    assert results[0] is total and not total.isnan().any()
    return bool((total > 0).all())
"""
SPEC = {
    "kernel": "kernel.py:accumulate",
    "cases": {"rows": 3},
    "tensors": {
        "x": {"shape": "rows", "dtype": "fp32", "init": "uniform"},
        "total": {"shape": "rows", "dtype": "fp32", "output": True},
    },
    "params": {"ROWS": [1, 2]},
    "grid": "rows",
}


class Kernel:
    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*, x: Any, total: Any, ROWS: int) -> None:
            total.nan_to_num_(nan=-9.0)  # what was not reset shows
            total += x + ROWS

        return launch


def verdict(folder: Path, name: str, **keys: Any) -> Any:
    (folder / "kernel.py").write_text(SOURCE)
    (folder / "spec.yaml").write_text(yaml.safe_dump({**SPEC, **keys}, sort_keys=False))
    spec, (case,) = kernel_spec_file.read(folder / "spec.yaml")

    def calls(config: dict[str, Any], grid: Any, arguments: Any) -> list[Any]:
        return [(config["name"], Kernel(), grid, (), arguments)]

    configs = {"right": {"name": "right", "ROWS": 1}, "wrong": {"name": "wrong", "ROWS": 2}}
    script: Any = SimpleNamespace(CONFIGS=configs, calls=calls)
    return check(WORKLOAD, script, KernelProblem.of(spec, case), name, 0, "cpu")


def test_the_reference_decides_and_what_is_reset_is_zero(tmp_path: Path) -> None:
    with_reference = {"reference": "kernel.py:reference", "reset": "total"}
    right, wrong = (verdict(tmp_path, name, **with_reference) for name in ("right", "wrong"))
    assert right.ok and right.how is None and not wrong.ok
    assert wrong.max_abs_error == pytest.approx(1.0) and "total[" in wrong.message
    assert not verdict(tmp_path, "right", reference="kernel.py:reference").ok
    with pytest.raises(BadReference, match=r"\(6,\) for outputs of \(3,\)"):
        verdict(tmp_path, "right", reference="kernel.py:longer", reset="total")
    with pytest.raises(BadReference, match="the reference takes m, and is given x, total, rows"):
        verdict(tmp_path, "right", reference="kernel.py:taking", reset="total")


def test_the_users_check_decides_in_its_place(tmp_path: Path) -> None:
    assert verdict(tmp_path, "wrong", manual_check="kernel.py:judge", reset="total").ok
    assert "judge says False" in verdict(tmp_path, "wrong", manual_check="kernel.py:judge").message


def test_what_is_not_checked_is_never_verified(tmp_path: Path) -> None:
    found = verdict(tmp_path, "wrong", check={"skip_check": True}, reference="kernel.py:reference")
    assert found.ok and found.how is Verified.FALSE
    right = verdict(tmp_path, "right", reference="kernel.py:reference", reset="total")
    assert how_verified([right], Verified.TRUE) is Verified.TRUE
    assert how_verified([right, found], Verified.TRUE) is Verified.FALSE


@pytest.mark.parametrize("keys", [{"manual_check": "kernel.py:judge"}, {"check": {"skip_check": True}}])
def test_a_gpu_that_a_configuration_loses_is_no_wrong_output_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    """Launches return before kernels fail: the check waits for these, or the next one would take the crash."""
    import torch

    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def launched(trial: Trial, script: Any, name: str) -> dict[str, Any]:
        outputs = of_trial(trial, script, name)
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        return outputs

    of_trial = Trial.outputs
    monkeypatch.setattr(Trial, "outputs", launched)
    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        verdict(tmp_path, "right", **keys)
