"""Which launcher a problem's rows are aligned for, and which one launches a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemm_tuner.moe.launcher import Launcher
from gemm_tuner.moe.own import NAME, OWN
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS

LAUNCHERS: Mapping[str, Launcher] = {**SERVERS, NAME: OWN}
BY_FAMILY = {one.family: one for one in LAUNCHERS.values()}


def of_problem(problem: MoeProblem) -> Launcher:
    return LAUNCHERS[problem.server]


def of_config(problem: MoeProblem, config: Mapping[str, Any]) -> Launcher:
    """Of a configuration without a family that of the problem."""
    return BY_FAMILY[config["family"]] if "family" in config else of_problem(problem)


def of_columns(c: Any) -> Launcher:
    """c: columns of configurations of one family."""
    return BY_FAMILY[str(c.family[0])]


def competing(problem: MoeProblem) -> tuple[Launcher, ...]:
    """Those whose kernels are measured for a problem: first the one whose configurations can win it."""
    mine = of_problem(problem)
    return (mine, OWN) if problem.beside else (mine,)


def other_kernel_fault(problem: MoeProblem, server: str) -> str:
    """Why a problem was not measured in a server's kernel; "" if it was."""
    if problem.server == server:
        return ""
    kernel = "this package's own" if problem.server == NAME else f"{problem.server}'s"
    return f"is of {kernel} kernel, which {server} has not; moe --kernel_from {server}=PATH tunes {server}'s"
