"""The implementation of ``core.workload.Workload`` for GEMM; the methods are in the modules of this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.axes import Axis
from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.entries import Entries
from gemm_tuner.core.records import Config, Device, Target
from gemm_tuner.core.workload import Launch
from gemm_tuner.core.workload_defaults import WorkloadDefaults
from gemm_tuner.gemm import (
    axes,
    combinations,
    companions,
    config_keys,
    descriptors,
    kernels,
    problem_keys,
    short_forms,
    vendor,
)
from gemm_tuner.gemm import check as checks
from gemm_tuner.gemm import operands as operand_sets
from gemm_tuner.gemm import specialization as specializations
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig
from gemm_tuner.gemm.families.family import family_of, known_families
from gemm_tuner.gemm.kernels import call_size
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem
from gemm_tuner.languages.cute.extra import MADE_WITH, why_absent

if TYPE_CHECKING:
    import pandas as pd

    from gemm_tuner.gemm.model import Floats


class GemmWorkload(WorkloadDefaults):
    """The workload of GEMM: problems are GemmProblems and configurations are KernelConfigs."""

    kind = GemmProblem.kind
    baseline_name = "torch.mm"
    entries = Entries(
        CONFIG_FIELDS,
        config_keys.config_form,
        problem_keys.problem_of,
        config_keys.config_of,
        example="- {M: 4096, N: 4096, K: 4096}",
    )
    problem_keys = problem_keys.SIZE_KEYS
    templates_dir: Path | None = None
    rules_dir: Path | None = None
    problem_from_dict = staticmethod(GemmProblem.from_dict)
    type_fault = staticmethod(combinations.type_fault)
    check_axes = staticmethod(axes.check_axes)
    frame = staticmethod(axes.frame)
    search_axes: Mapping[str, Axis] = {**WorkloadDefaults.search_axes, **axes.SEARCH_AXES}
    most_searched = 800.0  # the further families and axes of CuTe DSL do not need more (docs/search.md)

    label_meanings = short_forms.MEANINGS
    config_legend = short_forms.CONFIG_LEGEND
    label_parts = staticmethod(short_forms.label_parts)
    short_config = staticmethod(short_forms.short_config)
    whole_names = staticmethod(short_forms.whole_names)

    configs_of = staticmethod(axes.configs_of)
    names = staticmethod(axes.names)
    specialization = staticmethod(specializations.specialization)
    compile_cost = staticmethod(specializations.compile_cost)
    compile_calls = staticmethod(kernels.blank_calls)
    require_memory = staticmethod(operand_sets.require_memory)
    operands = staticmethod(operand_sets.rotation)
    baseline_call = staticmethod(vendor.vendor_call)
    check_problems = staticmethod(companions.check_problems)
    check = staticmethod(checks.check)
    examiner = staticmethod(checks.examiner)
    prepare_check = staticmethod(checks.prepare)
    same_launch = staticmethod(specializations.launch_of)

    # The model is computed with numpy, which processes that compile or read plans need not load.
    def predict_us(self, columns: Any, problem: GemmProblem, device: Device) -> Floats:
        from gemm_tuner.gemm import model

        return model.predict_us(columns, problem, device)

    def roofline_us(self, problem: GemmProblem, device: Device) -> float:
        from gemm_tuner.gemm import model

        return model.roofline_us(problem, device)

    def features(
        self, candidates: pd.DataFrame, problem: GemmProblem, device: Device, families: Sequence[str]
    ) -> Floats:
        from gemm_tuner.gemm import features

        return features.features(candidates, problem, device, families)

    def compile_work(self, candidates: pd.DataFrame, problem: GemmProblem, target: Target) -> tuple[Any, Any]:
        from gemm_tuner.gemm import compile_work

        return compile_work.compile_work(candidates, problem, target)

    def language_for(self, family: str) -> str:
        return family_of(family).language

    def other_languages(self, families: Sequence[str]) -> tuple[str, ...]:
        found = {family_of(name).language for name in (families or known_families())}
        return tuple(sorted(found - {self.language}))

    def absent(self, families: Iterable[str]) -> dict[str, str]:
        of_cute = [name for name in families if family_of(name).language == "cute"]
        why = why_absent() if of_cute else ""
        return dict.fromkeys(of_cute, why) if why else {}

    def config_from_dict(self, row: Mapping[str, Any]) -> KernelConfig:
        return KernelConfig(**row)

    def row(self, problem: GemmProblem) -> dict[str, Any]:
        if fault := combinations.first_fault(problem):
            raise ValueError(f"{problem.key}: {fault.what}")
        return problem_keys.problem_row(problem)

    def template_values(self, problem: GemmProblem, configs: Sequence[KernelConfig]) -> dict[str, Any]:
        """p: the problem with neutral sizes. bytes_of: bytes per element of A, B and C.
        configs: one tuple per configuration, with the values of ``fields``."""
        rows = [(c.name, c.kernel_symbol, *(getattr(c, field) for field in CONFIG_FIELDS)) for c in configs]
        fields = ("name", "binary", *CONFIG_FIELDS)
        types = {"a": problem.dtype_a, "b": problem.dtype_b, "c": problem.dtype_c}
        bytes_of = {name: DTYPES[dtype].size_bytes for name, dtype in types.items()}
        of_class = {"p": problem.as_class(), "bytes_of": bytes_of, "scale_block": SCALE_BLOCK, "library": MADE_WITH}
        return {**of_class, "configs": rows, "fields": fields}

    def loads_by_descriptor(self, config: Config, target: Target) -> bool:
        return descriptors.loads_by_descriptor(config.family, target)

    def scratch(self, script: ModuleType, config: Any, problem: GemmProblem, num_sms: int) -> tuple[int, int]:
        elements, locks = script.scratch(config, call_size(problem), num_sms)
        return int(elements), int(locks)

    def launches(
        self,
        script: ModuleType,
        config: dict[str, Any],
        problem: GemmProblem,
        operands: Any,
        scratch: Any,
        num_sms: int,
    ) -> list[Launch]:
        return script.calls(config, call_size(problem), operands, scratch, num_sms)  # type: ignore[no-any-return]


WORKLOAD = GemmWorkload()
