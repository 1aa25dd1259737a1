"""The implementation of ``core.workload.Workload`` for users' kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gemm_tuner.core.axes import Axis, OwnSpace
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Device, Problem, Verdict
from gemm_tuner.core.workload import Launch
from gemm_tuner.kernels import arguments
from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.kernels.kernel_spec import LAST, Case, KernelSpec
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.space.plain_workload import PlainWorkload

if TYPE_CHECKING:
    from gemm_tuner.kernels.check import Trial
    from gemm_tuner.kernels.jury import Jury

TEMPLATE = "user_kernel.py.j2"
# Upper limits of a case's integers in checks: of the aligned case, and of the ragged case.
SMALL, RAGGED = 128, 61


class KernelWorkload(PlainWorkload):
    kind = KernelProblem.kind
    problem_keys = ("kernel", "spec", "case")
    hashes_launches = True
    configs_are_given = True
    has_baseline_call = False
    baseline_name = "default"
    idle_flags: Mapping[str, str] = {
        "rotating_tensor": "a user's kernel has one set of tensors, and L2 is flushed before each call",
        "init_type": "the spec or the host function says how a user's kernel's tensors are filled",
    }
    # As in the tutorials of Triton: rows of tiles that are computed together.
    search_axes: Mapping[str, Axis] = {**PlainWorkload.search_axes, "GROUP_SIZE_M": Axis(0.5, any_step=True)}
    templates_dir: Path | None = None
    rules_dir: Path | None = None

    def problem_from_dict(self, row: Mapping[str, Any]) -> KernelProblem:
        return KernelProblem.from_dict(row)

    def row(self, problem: Problem) -> dict[str, Any]:
        return of(problem).row()

    def own_space(self, problems: Sequence[Problem], device: Device) -> OwnSpace:
        """The spec's space; all cases of a run belong to the same spec."""
        spec = spec_of(problems[0])
        rules = tuple(
            (f"rule_{number}", why or text, rule_of(spec, text)) for number, (text, why) in enumerate(spec.rules, 1)
        )
        return OwnSpace({family_of(spec): {name: list(values) for name, values in spec.params}}, rules)

    def on_device(self, problems: Sequence[Problem], device: Device) -> list[Problem]:
        return [replace(of(problem), num_sms=device.num_sms) for problem in problems]

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        spec, blank = spec_of(problem), of(problem).with_case(())
        values = super().template_values(blank, configs)
        return {**values, "body": TEMPLATE, "source": spec.kernel.source, "kernel_name": spec.kernel.name}

    def specialization(self, problem: Problem, config: Config, target: object) -> str:
        """Distinguishes all cases, which is finer than Triton; a binary that already exists is a cache hit."""
        return of(problem).key

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        """The launches for compilation. Values that depend on the number of SMs must be those of the later launch,
        because Triton specializes 1 and multiples of 16."""
        spec, num_sms = spec_of(problem), of(problem).num_sms
        names = names_in(problem, config, num_sms)
        made = arguments.tensors_of(spec, names, lambda _, dtype, shape: blank(dtype, math.prod(shape)))
        return call_of(script, config, problem, made, num_sms)

    def operands(self, problem: Problem, rotating_bytes: int, init_type: str, seed: int, device: str) -> Sequence[Any]:
        from gemm_tuner.kernels.tensors import Tensors

        return [Tensors.of(spec_of(problem), of(problem).values, seed, device)]

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        return call_of(script, config, problem, operands.by_name(), num_sms)

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        """The case (made small for the interpreter), and the spec's check_cases or else a ragged case."""
        spec, one = spec_of(problem), of(problem)
        sized = one.with_case(at_most(one.case, SMALL)) if interpreted else one
        others = spec.check_cases or (at_most(one.case, RAGGED),)
        return tuple(dict.fromkeys((sized, *(one.with_case(case) for case in others))))

    def check(self, script: ModuleType, problem: Problem, name: str, seed: int, device: str) -> Verdict:
        from gemm_tuner.kernels.check import check

        return check(self, script, of(problem), name, seed, device)

    def deciding(self, problem: Problem, samples_us: tuple[float, ...]) -> tuple[float, ...]:
        spec = of(problem).spec  # live functions have none
        return samples_us[-1:] if spec is not None and spec.select == LAST else samples_us

    def before_call(self, problem: Problem, operands: Any) -> Callable[[], None] | None:
        from gemm_tuner.kernels.tensors import readied

        spec = spec_of(problem)
        return readied(spec, operands.by_name()) if spec.reset or spec.restore else None

    def derived(self, problem: Problem, config: Config, device: Device) -> dict[str, Any]:
        names = names_in(problem, config.to_dict(), device.num_sms)
        found = {name: names[name] for name, _ in spec_of(problem).derived}
        return {name: one.item() if isinstance(one, np.generic) else one for name, one in found.items()}

    def compares_configs(self, problem: Problem) -> bool:
        spec = spec_of(problem)
        return spec.reference is None and spec.manual_check is None and not spec.check.skip_check

    def jury(self, problem: Problem, seed: int, device: str) -> Jury:
        from gemm_tuner.kernels.jury import Jury

        return Jury(self.trial(problem, seed, device))

    def trial(self, problem: Problem, seed: int, device: str) -> Trial:
        from gemm_tuner.kernels.check import Trial

        return Trial(self, of(problem), seed, device)

    def predict_us(self, columns: Any, problem: Problem, device: Device) -> Any:
        """The roofline for all configurations, because there is no model of their differences."""
        return np.full(len(columns.family), self.roofline_us(problem, device) or 1.0)

    def roofline_us(self, problem: Problem, device: Device) -> float | None:
        """From bytes, and from operations at the rate of the case's dtype, or at the highest rate if that is
        unknown."""
        rates = dict(device.matmul_tflops)
        rate = rates.get(str(of(problem).values.get("dtype", "")), max(rates.values(), default=0.0))
        by_flops = problem.flops / (rate * 1e6) if rate else 0.0
        return max(problem.bytes_moved / (device.dram_gbps * 1e3), by_flops) or None

    def features(self, candidates: Any, problem: Problem, device: Device, families: Sequence[str]) -> Any:
        numbers = [name for name, values in spec_of(problem).params if all(isinstance(one, int) for one in values)]
        return candidates[[*numbers, "predicted_us"]].to_numpy(np.float64)


def of(problem: Problem) -> KernelProblem:
    if not isinstance(problem, KernelProblem):
        raise TypeError(f"{problem.key} is no case of a user's kernel")
    return problem


def spec_of(problem: Problem) -> KernelSpec:
    """The problem's spec. Raises UserError for a problem from a results row, which has none."""
    spec = of(problem).spec
    if spec is None:
        hint = "the subcommand kernel takes it by --spec, and this file by --gemm_size_file"
        raise UserError("was read without its spec", where=problem.key, hint=hint)
    return spec


def family_of(spec: KernelSpec) -> str:
    return re.sub(r"^[^a-z]+", "", spec.name.lower()) or "kernel"


def configs_of(spec: KernelSpec) -> list[Config]:
    """The product of all parameter values, including configurations that rules reject."""
    return WORKLOAD.configs_of(WORKLOAD.frame({family_of(spec): dict(spec.params)}))


def params_of(spec: KernelSpec, config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name, _ in spec.params}


def names_in(problem: Problem, config: Mapping[str, Any], num_sms: int) -> dict[str, Any]:
    spec = spec_of(problem)
    return arguments.names_of(spec, of(problem).values, params_of(spec, config), num_sms)


def call_of(
    script: ModuleType, config: dict[str, Any], problem: Problem, tensors: Mapping[str, Any], num_sms: int
) -> list[Launch]:
    spec = spec_of(problem)
    launch = arguments.launch_of(spec, names_in(problem, config, num_sms), params_of(spec, config), tensors)
    calls: list[Launch] = script.calls(config, *launch)
    return calls


def rule_of(spec: KernelSpec, text: str) -> Callable[[Any, Problem, Device], Any]:
    """A rule of the spec as a predicate of columns: True for rows to keep."""

    def keep(columns: Any, problem: Problem, device: Device) -> Any:
        params = {name: np.asarray(getattr(columns, name)) for name, _ in spec.params}
        names = arguments.names_of(spec, of(problem).values, params, device.num_sms)
        expression = Expression.parse(text, f"rules of {spec.name}")
        try:
            found = expression.value(names)
        except UserError as error:
            at = _undefined_at(expression, names, len(columns.family))
            raise UserError(f"{error.what} ({at})", where=error.where, hint=error.hint) from None
        return np.broadcast_to(np.asarray(found, dtype=bool), (len(columns.family),))

    return keep


def _undefined_at(expression: Expression, columns: Mapping[str, Any], count: int) -> str:
    """The values in the first row at which an expression has none, such as ``ROWS=1``."""
    for row in range(count):
        one = {name: value[row] if isinstance(value, np.ndarray) and value.ndim else value
               for name, value in columns.items()}  # fmt: skip
        try:
            expression.value(one)
        except UserError:
            return ", ".join(f"{name}={one[name]}" for name in sorted(expression.names) if name in one)
    return "in no single row"


def at_most(case: Case, limit: int) -> Case:
    """The case with its integers limited to ``limit``."""
    return tuple((name, min(value, limit) if type(value) is int else value) for name, value in case)


WORKLOAD = KernelWorkload()
