"""Which launcher a problem's rows are aligned for, and which one launches a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Config
from gemm_tuner.moe.cute import CUTE, CUTE_FIELDS, FUSED
from gemm_tuner.moe.launcher import AMD_FIELDS, FIELDS, TMA, Launcher
from gemm_tuner.moe.own import NAME, OWN, OWN_FIELDS
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS

LAUNCHERS: Mapping[str, Launcher] = {**SERVERS, NAME: OWN, CUTE.name: CUTE}
_AXIS = re.compile(
    f"_((?:down_)?(?:{'|'.join((*FIELDS, *AMD_FIELDS, TMA, *OWN_FIELDS, *CUTE_FIELDS, FUSED))}))([0-9]+)"
)
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
    """Those whose kernels are measured for a problem: first that of the problem."""
    mine = of_problem(problem)
    if mine is not OWN and not problem.beside:
        return (mine,)
    ours = (OWN, CUTE) if CUTE.launches_it(problem, "cuda") else (OWN,)
    return tuple(dict.fromkeys((mine, *ours)))


def winning(problem: MoeProblem) -> tuple[Launcher, ...]:
    """Those whose configurations can win a problem."""
    mine = of_problem(problem)
    return competing(problem) if mine is OWN else (mine,)


def other_kernel_fault(problem: MoeProblem, server: str, consumer: str = "") -> str:
    """Why a problem was not measured in the kernel that a consumer's files are tuned in; "" if it was.

    server: whose kernel that is. consumer: who reads the files, if not the server."""
    if problem.server == server:
        return ""
    kernel = "this package's own" if problem.server == NAME else f"{problem.server}'s"
    return f"is of {kernel} kernel, which {consumer or server} has not"


def family_fault(config: Config, server: str) -> str:
    """Why a configuration is of another kernel than a server's; "" if it is of that."""
    family = SERVERS[server].family
    return "" if config.family == family else f"is of the kernel {config.family}, and not of {server}'s"


def named(name: str) -> PlainConfig | None:
    """The configuration with a name; None for other texts."""
    values = tuple((axis, int(value)) for axis, value in _AXIS.findall(name))
    found = [PlainConfig(family, values) for family in BY_FAMILY]
    return next((one for one in found if values and one.name == name), None)


def ours_named(name: str) -> PlainConfig | None:
    """The configuration of one of this package's own kernels with a name, such as a row of a server's kernel has it;
    None for other names."""
    found = named(name)
    return found if found is not None and BY_FAMILY[found.family] in (OWN, CUTE) else None
