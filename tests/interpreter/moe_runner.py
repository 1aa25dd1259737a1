"""Checks fused MoE kernels in Triton's interpreter, as a launcher does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interpreter_child import interpreter

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.moe.problem import MoeProblem


@dataclass(frozen=True)
class Result:
    ok: bool
    message: str
    error_over_bound: float


def checked(script: str, problem: MoeProblem, config: PlainConfig, seed: int = 0) -> Result:
    """The verdict at exactly this problem. script: its path."""
    given = {"script": script, "problem": problem.to_dict(), "name": config.name, "seed": seed}
    return Result(**interpreter().ask(run, **given))


def run(script: str, problem: dict[str, Any], name: str, seed: int) -> dict[str, Any]:
    """Inside the interpreting process."""
    from case_runner import script_at

    from gemm_tuner.core.workload import problem_from_dict
    from gemm_tuner.moe.workload import WORKLOAD

    found = WORKLOAD.check(script_at(script), problem_from_dict(problem), name, seed, "cpu")
    return {"ok": found.ok, "message": found.message, "error_over_bound": found.error_over_bound}
