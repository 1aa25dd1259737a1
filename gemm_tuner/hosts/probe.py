"""Runs a host function once per case in a separate process, before anything is compiled, to find faults early and to
get the configurations of the kernel's own triton.autotune."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.languages.triton.kernel_env import FOREIGN_VARIABLES
from gemm_tuner.system.installation import import_path
from gemm_tuner.system.processes import guarded_command, module_command

LIMIT_S = 300.0  # for importing torch and all calls


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for one problem. params, listed, default: as in HostSpec and HostProblem. fault: (what, where,
    hint)."""

    params: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    listed: tuple[tuple[Any, ...], ...] | None = None
    default: tuple[Any, ...] | None = None
    fault: tuple[str, str, str] | None = None


def probed(problems: Sequence[HostProblem], device: Device) -> list[Problem]:
    """The problems with the device, and, if the spec has no params, with those of triton.autotune: the same axes for
    all problems, and a list of configurations for each. Raises UserError for a host function that cannot be
    captured."""
    there = [replace(problem, device=device) for problem in problems]
    answers = ask(there)
    for answer in answers:
        if answer.fault is not None:
            what, where, hint = answer.fault
            raise UserError(what, where=where, hint=hint)
    params = answers[0].params
    return [
        replace(
            problem,
            spec=replace(problem.spec_there, params=params),
            listed=None if answer.listed is None else frozenset(answer.listed),
            default=answer.default,
        )
        for problem, answer in zip(there, answers, strict=True)
    ]


def ask(problems: Sequence[HostProblem]) -> list[Answer]:
    """Runs the process. Raises UserError if it fails or exceeds its time limit."""
    request = json.dumps([problem.to_dict() for problem in problems])
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
    env |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": import_path(env)}
    command = guarded_command(module_command("gemm_tuner.hosts.probe_process"))
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"took more than {LIMIT_S:g} s, with nothing to launch on", where="--host") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise EnvironmentFault(f"the host function ended its process ({done.returncode}): {last}", where="--host")
    return [answer_of(row) for row in json.loads(lines[-1])]


def answer_of(row: dict[str, Any]) -> Answer:
    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return Answer(**{name: tuples(value) for name, value in row.items()})


def row_of(answer: Answer) -> dict[str, Any]:
    return asdict(answer)
