"""Checks of what a host function launches, in the interpreting process."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from interpreter_child import interpreter


def verdicts(target: str, host: str, spec: Path, config: dict[str, Any], arch: str) -> list[tuple[bool, str, float]]:
    """(right, message, error over bound) at each size of a check. target, host: as on the command line."""
    found = interpreter().ask(run, target=target, host=host, spec=str(spec), config=config, arch=arch)
    return [tuple(one) for one in found]


def run(target: str, host: str, spec: str, config: dict[str, Any], arch: str) -> list[tuple[bool, str, float]]:
    """Inside the interpreting process."""
    from gemm_tuner.hosts import host_spec_file
    from gemm_tuner.hosts.host_spec import HostProblem
    from gemm_tuner.hosts.redirection import CPU
    from gemm_tuner.hosts.workload import WORKLOAD
    from gemm_tuner.space import space
    from gemm_tuner.system.installation import data_folder

    read, cases = host_spec_file.read(target, host, Path(spec))
    one = HostProblem.of(read, cases[0])
    device = space.load(space.space_path(data_folder("rules"), arch), arch).device
    problem = HostProblem(one.name, one.sha, one.case, read, device=device)
    script: Any = ModuleType("script")
    script.MODULES, script.CONFIGS = dict(read.host.modules), {"one": config}
    sizes = WORKLOAD.check_problems(problem, config, descriptors=False, interpreted=True)
    found = [WORKLOAD.check(script, size, "one", 0, CPU) for size in sizes]
    return [(verdict.ok, verdict.message, verdict.error_over_bound) for verdict in found]
