"""Results files made for an export, and the modules that came of them."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import samples
from result_files import write_choices

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store import results

H200 = samples.ROOT / "results" / "tuned" / "nvidia_h200_bf16.yaml"
HEADER = results.Header(
    *("0.1.0", "2026-01-31T12:00:00Z", "NVIDIA H200", "sm_90", 132, "570", "3.6.0", "2.11.0", "3.12.3"),
    *("nsys", "2025.3", "randn", 0, "flushed", "measured"),
)
PLAIN = samples.problem(512, 512, 512)


def choice(problem: GemmProblem, config: KernelConfig | None = None, verified: Verified = Verified.TRUE) -> Choice:
    timed = (verified, 10.0, 9.5, 10.5, 30, 12.0, 0.01, 0.001, "", None, False, 70.0)
    return Choice(problem, config or samples.config(), "measured", *timed)


def written(folder: Path, *rows: Choice, failures: Any = (), **header: Any) -> Path:
    path = folder / "tuned.yaml"
    write_choices(path, replace(HEADER, **header), rows, failures)
    return path


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
