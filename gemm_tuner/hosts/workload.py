"""The implementation of ``core.workload.Workload`` for kernels that a user's host function launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gemm_tuner.core.axes import OwnSpace
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Config, Device, Problem
from gemm_tuner.core.workload import Launch, PreparedLaunches
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.shared_tensors import SharedTensors
from gemm_tuner.kernels.workload import SMALL, KernelWorkload, at_most, family_of

if TYPE_CHECKING:
    from gemm_tuner.kernels.check import Trial

TEMPLATE = "user_host.py.j2"
LISTED = "triton_autotune"


@dataclass(frozen=True)
class HostInputs:
    """The operands: the host function creates tensors for each configuration, and equal ones are shared."""

    seed: int
    shared: SharedTensors = field(default_factory=SharedTensors)


class HostWorkload(KernelWorkload):
    kind = HostProblem.kind

    def problem_from_dict(self, row: Mapping[str, Any]) -> HostProblem:
        return HostProblem.from_dict(row)

    def on_device(self, problems: Sequence[Problem], device: Device) -> list[Problem]:
        from gemm_tuner.hosts import probe

        return probe.probed([of(problem) for problem in problems], device)

    def own_space(self, problems: Sequence[Problem], device: Device) -> OwnSpace:
        own, first = super().own_space(problems, device), of(problems[0])
        if first.listed is None:
            return own
        why = f"not among the configurations of {first.spec_there.kernel.name} for this case"
        return replace(own, rules=((LISTED, why, is_listed), *own.rules))

    def default_config(self, problem: Problem, device: Device) -> PlainConfig | None:
        """The configuration that the host function launches without parameters."""
        one = of(problem)
        names = [name for name, _ in one.spec_there.params]
        found = None if one.default is None else tuple(zip(names, one.default, strict=True))
        return None if found is None else PlainConfig(family_of(one.spec_there), found)

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        values = super().template_values(problem, configs)
        return {**values, "body": TEMPLATE, "modules": dict(of(problem).spec_there.host.modules)}

    def start_worker(self) -> None:
        from gemm_tuner.languages.triton.compile_call import let_torch_in

        let_torch_in()

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        from gemm_tuner.hosts.captured import compiled_launches
        from gemm_tuner.hosts.host_code import HostCode, modules_of, params_of
        from gemm_tuner.hosts.redirection import META, redirected
        from gemm_tuner.hosts.stand_in_device import described

        one = of(problem)
        assert one.device is not None
        with described(one.device), redirected(META):
            code = HostCode(one.spec_there, modules_of(script))
            recorder, _ = code.call(one.case, params_of(config), 0, runs=False)
            return compiled_launches(recorder.launches, recorder.tuned_at)

    def operands(self, problem: Problem, rotating_bytes: int, init_type: str, seed: int, device: str) -> Sequence[Any]:
        return [HostInputs(seed)]

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        """The recorded launches. No kernel runs while recording, so values that the host function computes from results
        of kernels are computed from zeros."""
        from gemm_tuner.hosts.host_code import HostCode, modules_of, params_of, with_empty_filled

        one = of(problem)
        addressed: list[Any] = []
        with with_empty_filled(0.0, addressed):
            code = HostCode(one.spec_there, modules_of(script))
            recorder, _ = code.call(one.case, params_of(config), operands.seed, runs=False)
        launches = operands.shared.shared(recorder.launches, recorder.readied)
        return PreparedLaunches(launches, recorder.ready if recorder.readied else None, kept=addressed)

    def before_call(self, problem: Problem, operands: Any) -> Callable[[], None] | None:
        return None

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        """The case and the spec's check_cases; for the interpreter only check_cases, or else a small case. There is no
        automatic ragged case, because only the host function knows which values are valid."""
        one = of(problem)
        others = [one.with_case(case) for case in one.spec_there.check_cases]
        if interpreted:
            return tuple(others) or (one.with_case(at_most(one.case, SMALL)),)
        return tuple(dict.fromkeys((one, *others)))

    def trial(self, problem: Problem, seed: int, device: str) -> Trial:
        from gemm_tuner.hosts.host_trial import HostTrial

        return HostTrial(of(problem), seed, device)


def is_listed(columns: Any, problem: Problem, device: Device) -> Any:
    """A rule that keeps the configurations of the kernel's own triton.autotune."""
    one = of(problem)
    names = [name for name, _ in one.spec_there.params]
    rows = zip(*(np.asarray(getattr(columns, name)).tolist() for name in names), strict=True)
    listed = one.listed or frozenset()
    return np.fromiter((row in listed for row in rows), dtype=bool, count=len(columns.family))


def of(problem: Problem) -> HostProblem:
    if not isinstance(problem, HostProblem):
        raise TypeError(f"{problem.key} is no case of a host function")
    return problem


WORKLOAD = HostWorkload()
