"""Checks fused MoE kernels in Triton's interpreter, as a launcher does."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


def checked_narrow(script: str, problem: MoeProblem, config: PlainConfig) -> Result:
    """As ``checked``, with operands of the problem's own types, of which the interpreter multiplies fp16."""
    given = {"script": script, "problem": problem.to_dict(), "name": config.name}
    return Result(**interpreter().ask(run_narrow, **given))


def run_narrow(script: str, problem: dict[str, Any], name: str) -> dict[str, Any]:
    """Inside the interpreting process."""
    from case_runner import script_at

    from gemm_tuner.core.workload import launch_all, problem_from_dict
    from gemm_tuner.moe import check, operands
    from gemm_tuner.moe.launch import PARTS
    from gemm_tuner.moe.workload import WORKLOAD

    one, code = problem_from_dict(problem), script_at(script)
    assert isinstance(one, MoeProblem)
    given = operands.make(one, 0, "cpu")[0]
    launch_all(WORKLOAD.launches(code, code.CONFIGS[name], one, given, None, 1))
    found = [check.compared(one, given, part, name, given.gemms[part].c, wide=False) for part in PARTS]
    worst = max(found, key=lambda verdict: verdict.error_over_bound)
    return {"ok": worst.ok, "message": worst.message, "error_over_bound": worst.error_over_bound}


def operator_error(script: str, problem: MoeProblem, config: PlainConfig) -> float:
    """Of a whole call, against the operator in float64: the largest error over the largest value."""
    given = {"script": script, "problem": problem.to_dict(), "name": config.name}
    return float(interpreter().ask(run_operator, **given))


def run_operator(script: str, problem: dict[str, Any], name: str) -> float:
    """Inside the interpreting process, where GEMMs in CuTe DSL are torch's products. Runs the call twice: the second
    has the first one's leftovers."""
    from case_runner import script_at
    from moe_operator import operator_of
    from sorted_gemm import with_products

    from gemm_tuner.core.workload import problem_from_dict
    from gemm_tuner.moe import operands, whole_call, whole_call_sorted
    from gemm_tuner.moe.workload import WORKLOAD

    one, code = problem_from_dict(problem), script_at(script)
    assert isinstance(one, MoeProblem)
    given = operands.make(one, 0, "cpu")[0]
    work = WORKLOAD, code, code.CONFIGS[name], given.interpretable()
    if code.CONFIGS[name]["family"] == "cute_moe":
        sorted_call = whole_call_sorted.made(*work)
        call = replace(sorted_call, launches=with_products(sorted_call.launches))
    else:
        call = whole_call.made(*work)
    call.out.fill_(float("nan"))
    call.run()
    call.run()
    expected = operator_of(one, given, call.x)
    return float((call.out.double() - expected).abs().max() / expected.abs().max())
