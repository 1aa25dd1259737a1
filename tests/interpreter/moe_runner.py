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
    import torch
    from case_runner import script_at
    from sorted_gemm import with_products

    from gemm_tuner.core.workload import problem_from_dict
    from gemm_tuner.moe import operands, whole_call, whole_call_sorted
    from gemm_tuner.moe.launch import DOWN, UP
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
    x, routed = call.x.double(), given.router.double().reshape(one.M, one.topk)
    weights = {part: _weights(one, given.gemms[part]) for part in (UP, DOWN)}
    expected = torch.zeros(one.M, one.K, dtype=torch.float64)
    for token in range(one.M):
        for place, expert in enumerate(given.ids[token].tolist()):
            if expert >= one.E:  # of another rank
                continue
            hidden = x[token] @ weights[UP][expert].T
            hidden = hidden + (given.gemms[UP].bias[expert].double() if one.bias else 0)
            hidden = _activated(one, hidden)
            if one.scaling == "tensor":  # given, and not made to hold the largest
                limit = 448 * float(given.gemms[DOWN].a_scale)
                hidden = hidden.clamp(-limit, limit)
            made = weights[DOWN][expert] @ hidden
            made = made + (given.gemms[DOWN].bias[expert].double() if one.bias else 0)
            expected[token] += routed[token, place] * made
    assert bool(expected.abs().max() > 0)
    return float((call.out.double() - expected).abs().max() / expected.abs().max())


def _weights(problem: MoeProblem, gemm: Any) -> Any:
    """In float64."""
    import torch

    from gemm_tuner.moe.check import dequantised

    if problem.grouped:
        return torch.stack([dequantised(problem, gemm, expert, wide=True) for expert in range(problem.E)])
    return gemm.w.double() * _scale(problem, gemm)


def _scale(problem: MoeProblem, gemm: Any) -> Any:
    if problem.scaling == "block":
        rows, columns = problem.block_shape
        return gemm.w_scale.double().repeat_interleave(rows, 1).repeat_interleave(columns, 2)
    return 1.0 if gemm.w_scale is None else gemm.w_scale.double().reshape(problem.E, -1, 1)


def _activated(problem: MoeProblem, hidden: Any) -> Any:
    import torch

    if problem.activation == "relu2_no_mul":
        return torch.relu(hidden).square()
    if problem.activation == "swigluoai":
        gate, value = hidden[0::2].clamp(max=7), hidden[1::2].clamp(-7, 7)
        return gate * torch.sigmoid(1.702 * gate) * (value + 1)
    gate, value = hidden[: problem.N], hidden[problem.N :]
    return (torch.nn.functional.gelu(gate) if problem.activation == "gelu" else gate * torch.sigmoid(gate)) * value
