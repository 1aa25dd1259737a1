"""What a spec resets and restores is ready before each call, and not part of its time."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.journal import Journal
from gemm_tuner.launch.plan import SCREEN, Method, Plan, Work
from gemm_tuner.launch.processor import Cpu
from gemm_tuner.launch.timing import finals, screen

SOURCE = """
@triton.jit
def accumulate(x, total, ROWS):
    pass
"""
SPEC = {
    "kernel": "kernel.py:accumulate",
    "cases": {"rows": 3},
    "tensors": {
        "x": {"shape": "rows", "dtype": "fp32"},
        "total": {"shape": "rows", "dtype": "fp32", "output": True},
    },
    "params": {"ROWS": [1, 2]},
    "grid": "rows",
}


class Kernel:
    """Writes what it found into ``seen``, then changes both tensors as an in-place kernel does."""

    def __init__(self, happens: list[Any]) -> None:
        self._happens = happens

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*, x: Any, total: Any, ROWS: int) -> None:
            self._happens.append((x.clone(), total.clone()))
            x += ROWS
            total += x

        return launch


def script(happens: list[Any]) -> Any:
    def calls(config: dict[str, Any], grid: Any, arguments: Any) -> list[Any]:
        return [(config["name"], Kernel(happens), grid, (), arguments)]

    return SimpleNamespace(
        CONFIGS={name: {"name": name, "ROWS": rows} for rows, name in ((1, "a"), (2, "b"))}, calls=calls
    )


def problem(folder: Path, **keys: Any) -> KernelProblem:
    (folder / "kernel.py").write_text(SOURCE)
    (folder / "spec.yaml").write_text(yaml.safe_dump({**SPEC, **keys}))
    spec, (case,) = kernel_spec_file.read(folder / "spec.yaml")
    return KernelProblem.of(spec, case)


@pytest.mark.parametrize("stage", [screen, finals])
def test_each_call_begins_with_what_is_reset_and_restored_before_l2_is_emptied(tmp_path: Path, stage: Any) -> None:
    import torch

    happens: list[Any] = []
    of = problem(tmp_path, reset=["total"], restore="x")
    plan = Plan(SCREEN, (), (), Method(warmup_calls=1, timed_calls=3, flush_bytes=64), device="cpu")
    kernels = {one: (lambda *_, one=one: happens.append(one)) for one in (BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL)}
    language: Any = SimpleNamespace(support_calls=lambda flush_bytes, device: kernels)
    bench = Bench(plan, Journal(io.StringIO()), tmp_path / "stop", language, Cpu())
    stage(bench, 0, Work(of, ((0, "a"), (0, "b")), again="a", rounds=2), [script(happens)])
    calls = [one for one in happens if isinstance(one, tuple)]
    assert len(calls) >= 8
    first = calls[0][0]
    assert first.abs().sum() > 0
    for x, total in calls:
        assert torch.equal(x, first) and not total.any()
    assert happens[-2] == FLUSH_SYMBOL and isinstance(happens[-1], tuple)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"reset": ["totl"]}, "did you mean total?"),
        ({"restore": "ROWS"}, "ROWS is no tensor"),
        ({"restore": "total", "reset": "total"}, "in reset, too"),
    ],
)
def test_only_tensors_are_reset(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words.replace("?", r"\?")):
        problem(tmp_path, **keys)
