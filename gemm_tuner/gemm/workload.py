"""GEMM as a kind of problem: what ``core.workload.Workload`` asks for, by the modules of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Device, Problem, Target, Verdict
from gemm_tuner.core.workload import Launch
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig, tile
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem, as_gemm
from gemm_tuner.gemm.problem_keys import SIZE_KEYS


class GemmWorkload:
    """Every method takes a GemmProblem and a KernelConfig, and raises TypeError for those of another kind."""

    kind = GemmProblem.kind
    language = "triton"
    problem_keys = SIZE_KEYS
    templates_dir: Path | None = None
    rules_dir: Path | None = None

    def problem_from_dict(self, row: Mapping[str, Any]) -> GemmProblem:
        return GemmProblem.from_dict(row)

    def config_from_dict(self, row: Mapping[str, Any]) -> KernelConfig:
        return KernelConfig(**row)

    def type_fault(self, problem: Problem, device: Device) -> UserError | None:
        from gemm_tuner.gemm.arch_types import type_fault

        return type_fault(as_gemm(problem), device)

    def check_axes(self, axes: Any, where: str, device: Device) -> dict[str, tuple[Any, ...]]:
        from gemm_tuner.gemm.axes import check_axes

        return {**check_axes(axes, where, device)}

    def frame(self, families: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> Any:
        from gemm_tuner.gemm.axes import frame

        return frame(families)

    def configs_of(self, configs: Any) -> list[Config]:
        from gemm_tuner.gemm.axes import configs_of

        return [*configs_of(configs)]

    def names(self, configs: Any) -> Any:
        from gemm_tuner.gemm.axes import names

        return names(configs)

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        """p: the problem with blank sizes. configs: one tuple a configuration, of ``fields``."""
        rows = [(c.name, c.kernel_symbol, *(getattr(c, field) for field in CONFIG_FIELDS)) for c in configs]
        fields = ("name", "binary", *CONFIG_FIELDS)
        return {"p": as_gemm(problem).as_class(), "configs": rows, "fields": fields, "scale_block": SCALE_BLOCK}

    def specialization(self, problem: Problem, config: Config, target: Target) -> str:
        from gemm_tuner.gemm.specialization import specialization

        return specialization(as_gemm(problem), tile(config), target)

    def loads_by_descriptor(self, config: Config, target: Target) -> bool:
        from gemm_tuner.gemm.descriptors import loads_by_descriptor

        return loads_by_descriptor(config.family, target)

    def compile_cost(self, config: Config) -> float:
        from gemm_tuner.gemm.specialization import compile_cost

        return compile_cost(tile(config))

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        from gemm_tuner.gemm.kernels import blank_calls

        return blank_calls(script, config, as_gemm(problem), blank)

    def require_memory(self, problem: Problem, rotating_bytes: int, device: str) -> None:
        from gemm_tuner.gemm.operands import require_memory

        require_memory(as_gemm(problem), rotating_bytes, device)

    def operands(self, problem: Problem, rotating_bytes: int, init_type: str, seed: int, device: str) -> Sequence[Any]:
        from gemm_tuner.gemm.operands import rotation

        return rotation(as_gemm(problem), rotating_bytes, init_type, seed, device)

    def scratch(self, script: ModuleType, config: dict[str, Any], problem: Problem, num_sms: int) -> tuple[int, int]:
        from gemm_tuner.gemm.scratch import call_size

        elements, locks = script.scratch(config, call_size(as_gemm(problem)), num_sms)
        return int(elements), int(locks)

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        from gemm_tuner.gemm.scratch import call_size

        calls: list[Launch] = script.calls(config, call_size(as_gemm(problem)), operands, scratch, num_sms)
        return calls

    def baseline_call(self, problem: Problem, operands: Any) -> Callable[[], Any] | None:
        from gemm_tuner.gemm.vendor import vendor_call

        return vendor_call(as_gemm(problem), operands)

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        from gemm_tuner.gemm.companions import odd_companion, small_companion

        sized = small_companion(as_gemm(problem), config) if interpreted else problem
        return sized, odd_companion(as_gemm(problem), config, descriptors)

    def check(self, script: ModuleType, problem: Problem, name: str, seed: int, device: str) -> Verdict:
        from gemm_tuner.gemm.check import check

        return check(script, as_gemm(problem), name, seed, device)

    def predict_us(self, columns: Any, problem: Problem, device: Device) -> Any:
        from gemm_tuner.gemm.model import predict_us

        return predict_us(columns, as_gemm(problem), device)

    def roofline_us(self, problem: Problem, device: Device) -> float:
        from gemm_tuner.gemm.model import roofline_us

        return roofline_us(as_gemm(problem), device)

    def features(self, candidates: Any, problem: Problem, device: Device, families: Sequence[str]) -> Any:
        from gemm_tuner.gemm.features import matrix

        return matrix(candidates, as_gemm(problem), device, families)

    def same_launch(self, problem: Problem, config: Config, num_sms: int) -> tuple[str | int, ...]:
        from gemm_tuner.gemm.same_launch import launch_of

        return launch_of(as_gemm(problem), tile(config), num_sms)

    def row(self, problem: Problem) -> dict[str, Any]:
        from gemm_tuner.gemm.combinations import first_fault
        from gemm_tuner.gemm.problem_keys import problem_row

        fault = first_fault(as_gemm(problem))
        if fault:
            raise ValueError(f"{problem.key}: {fault.what}")
        return problem_row(as_gemm(problem))


WORKLOAD = GemmWorkload()
