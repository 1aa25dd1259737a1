"""Modules as the export writes them, loaded and called on the GPU at hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from gpu_work import Gpu

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store import results


def choice(problem: GemmProblem, config: KernelConfig) -> Choice:
    timed = (Verified.TRUE, 10.0, 9.5, 10.5, 30, 12.0, 0.01, 0.001, "", None, False, 70.0)
    return Choice(problem, config, "measured", *timed)


def header_of(gpu: Gpu) -> results.Header:
    return results.Header(
        tool_version="0.1.0", date="2026-01-31T12:00:00Z", device=gpu.device.name, arch=gpu.device.target.arch,
        num_sms=gpu.device.num_sms, driver="", triton="", torch="", python="", profiler="nsys", profiler_version="",
        init_type="randn", seed=0, l2="flushed", source="measured",
    )  # fmt: skip


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # torch.compile looks a function's module up by its name
    spec.loader.exec_module(module)
    return module


def operands_of(problem: GemmProblem, seed: int) -> tuple[Any, tuple[Any, Any, Any]]:
    """The operands of a problem, and a, b and bias as matmul takes them."""
    from gemm_tuner.gemm.operands import make_operands

    operands = make_operands(problem, "randn", seed, "cuda")
    return operands, (*operands.logical(problem), operands.bias)


def fault(module: ModuleType, problem: GemmProblem, seed: int) -> str:
    """What is wrong with matmul for a problem, called three times; empty when it is right."""
    from gemm_tuner.gemm.compare import compare
    from gemm_tuner.gemm.reference import reference

    operands, given = operands_of(problem, seed)
    wanted = reference(problem, operands)
    more = {"c": operands.c_in, "scale_a": operands.scale_a, "scale_b": operands.scale_b}
    factors = {"alpha": problem.alpha, "beta": problem.beta or 1.0, "activation": problem.activation}
    for _ in range(3):
        result = module.matmul(*given, **more, **factors)
        verdict = compare(result.reshape(-1, problem.n), *wanted, problem, "matmul")
        if not verdict.ok:
            return f"{problem.key}: {verdict.message}"
    return ""
