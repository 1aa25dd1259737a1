"""The implementation of ``core.workload.Workload`` for users' kernels in CuTe DSL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Config, Device, Problem
from gemm_tuner.core.workload import Launch
from gemm_tuner.cute.problem import CuteProblem
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.kernels.workload import KernelWorkload, at_most, names_in, of, spec_of

TEMPLATE = "user_cute.py.j2"
RAGGED = 72


class CuteWorkload(KernelWorkload):
    kind = CuteProblem.kind
    language = "cute"
    hashes_launches = False

    def problem_from_dict(self, row: Mapping[str, Any]) -> KernelProblem:
        return CuteProblem.from_dict(row)

    def type_fault(self, problem: Problem, device: Device) -> UserError | None:
        return fault_of(device)

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        return {**super().template_values(problem, configs), "body": TEMPLATE}

    def specialization(self, problem: Problem, config: Config, target: object) -> str:
        """Cases share a binary if they agree in the values that the kernel's builder takes."""
        taken = spec_of(problem).kernel.parameters
        return " ".join(f"{name}={value}" for name, value in of(problem).case if name in taken)

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        """As for other kernels; the automatic ragged case keeps rows aligned to 16 bytes, as TMA requires."""
        one = of(problem)
        others = spec_of(problem).check_cases or (at_most(one.case, RAGGED),)
        return tuple(dict.fromkeys((one, *map(one.with_case, others))))

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        return call_of(script, config, problem, {}, 1)

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        return call_of(script, config, problem, operands.by_name(), num_sms)


def fault_of(device: Device) -> UserError | None:
    """Why the device is not supported; None if it is."""
    if device.target.backend in language_of(CuteWorkload.language).backends:
        return None
    return UserError(f"CuTe DSL compiles nothing for {device.target.arch}", accepted="GPUs of NVIDIA, such as sm_90")


def call_of(
    script: ModuleType, config: dict[str, Any], problem: Problem, tensors: Mapping[str, Any], num_sms: int
) -> list[Launch]:
    """The launches of a call. tensors: empty for compilation only."""
    spec, names = spec_of(problem), names_in(problem, config, num_sms)
    values = {name: names[name] for name in spec.kernel.parameters if name in names}
    arguments = tuple(tensors.values()) + tuple(names[name] for name, _ in spec.args)
    calls: list[Launch] = script.calls(config, values, arguments)
    return calls


WORKLOAD = CuteWorkload()
