"""The implementation of ``core.workload.Workload`` for fused MoE layers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gemm_tuner.core.axes import Axis, OwnSpace
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.judges import Examiner
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Config, Device, Problem, Target, Verdict
from gemm_tuner.core.workload import Launch
from gemm_tuner.languages.cute.extra import GET, MADE_WITH, why_absent
from gemm_tuner.moe import (
    companions,
    cute_arguments,
    features,
    launch,
    launchers,
    model,
    operands,
    own_arguments,
    pairs,
    routing,
    rules,
    sensitivity,
    short_forms,
    sorted_rows,
)
from gemm_tuner.moe.cute import ARCHITECTURE, CUTE, FUSED_KEY, is_fused
from gemm_tuner.moe.launcher import TMA
from gemm_tuner.moe.operands import MoeOperands
from gemm_tuner.moe.own import OWN
from gemm_tuner.moe.problem import KEYS, MoeProblem
from gemm_tuner.moe.rules import of
from gemm_tuner.moe.servers import SERVERS
from gemm_tuner.space.plain_workload import PlainWorkload

# Compute capability.
FIRST_WITH_TMA = (9, 0)


class MoeWorkload(PlainWorkload):
    kind = MoeProblem.kind
    baseline_name = "default"
    has_baseline_call = False  # the default is a configuration
    idle_flags: Mapping[str, str] = {
        "rotating_tensor": "a fused MoE layer has one set of operands for each draw of the routing",
        "init_type": "a fused MoE layer's dtype says what its operands hold",
    }
    config_legend = short_forms.LEGEND
    label_parts = staticmethod(short_forms.label_parts)
    short_config = staticmethod(short_forms.short_config)
    sets_are_apart = False  # draws of the routing share the weights
    problem_keys = KEYS
    search_axes: Mapping[str, Axis] = {**PlainWorkload.search_axes, "GROUP_SIZE_M": Axis(0.5, any_step=True)}
    templates_dir: Path | None = None
    rules_dir: Path | None = None

    def problem_from_dict(self, row: Mapping[str, Any]) -> MoeProblem:
        return MoeProblem.from_dict(row)

    def row(self, problem: Problem) -> dict[str, Any]:
        return of(problem).row()

    def type_fault(self, problem: Problem, device: Device) -> UserError | None:
        key = of(problem).rate_key
        if key in dict(device.matmul_tflops):
            return None
        hint = ""
        if key.startswith("fp8") and device.target.facts.fp8 != "none":
            hint = f"--fp8 {'fp8_e4m3_fnuz' if device.target.facts.fp8 == 'fnuz' else 'fp8_e4m3'} is what it has"
        known = ", ".join(dict(device.matmul_tflops))
        return UserError(f"{device.target.arch} does not multiply {key}", where=problem.key, accepted=known, hint=hint)

    def language_for(self, family: str) -> str:
        return "cute" if family == CUTE.family else self.language

    def other_languages(self, families: Sequence[str]) -> tuple[str, ...]:
        return ("cute",) if not families or CUTE.family in families else ()

    def absent(self, families: Iterable[str]) -> dict[str, str]:
        brings = f"{GET} has one more kernel of this package's own; no gain over own_moe was measured"
        why = why_absent(brings) if CUTE.family in families else ""
        return {CUTE.family: why} if why else {}

    def own_space(self, problems: Sequence[Problem], device: Device) -> OwnSpace:
        layers = [of(problem) for problem in problems]
        backend = device.target.backend
        families = {
            by.family: by.axes(one, backend)
            for one in layers
            for by in launchers.competing(one)
            if by is not CUTE or device.target.arch == ARCHITECTURE
        }
        return OwnSpace(families, _named(rules.VALID), _named(rules.LIKELY))

    def default_config(self, problem: Problem, device: Device) -> PlainConfig | None:
        """What the server launches without a tuned file, with Triton's defaults for the options that it does not
        set. None for this package's own kernel."""
        one = of(problem)
        if one.server not in SERVERS:
            return None
        server, arch = SERVERS[one.server], device.target.arch
        fields = dict(server.default(one, arch))
        if device.target.backend == "hip":
            unset = {"waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1}
            fields |= {name: unset[name] for name in server.axes(one, "hip") if name in unset}
        elif server.has_tma(one, device.target.backend):
            fields[TMA] = 0
        return PlainConfig(server.family, tuple(fields.items()))

    def can_win(self, problem: Problem, config: Config) -> bool:
        """Of a server's problem its own configurations, which it can launch; never one whose GEMMs do the activation's
        work, too."""
        families = {launcher.family for launcher in launchers.winning(of(problem))}
        return config.family in families and not is_fused(config.options())

    def rival_key(self, problem: Problem, config: Config) -> str:
        return FUSED_KEY if is_fused(config.options()) else super().rival_key(problem, config)

    def recombined(self, problem: Problem, screened: Sequence[tuple[Config, tuple[float, ...]]]) -> list[Config]:
        found = [launcher for launcher in launchers.competing(of(problem)) if launcher.has_pairs]
        sorts = [[one for one in screened if is_fused(one[0].options()) is fused] for fused in (False, True)]
        return [
            pair for one in found for some in sorts for pair in pairs.best(one.family, some, is_padded=one is not CUTE)
        ]

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        one = of(problem)
        if one.kernel is None and one.server in SERVERS:
            hint = "the subcommand moe takes it by --kernel_from"
            raise UserError("was read without its kernel", where=one.key, hint=hint)
        shared = MoeProblem(one.server, 1, 1, 16, 16, 1, kernel_sha=one.kernel_sha)
        values = super().template_values(shared, ())
        fields = tuple(dict.fromkeys(axis for config in configs for axis in config.options()))
        rows = [
            (config.name, config.kernel_symbol, config.family, *map(config.options().get, fields)) for config in configs
        ]
        named = ("name", "binary", "family", *fields)
        return {**values, "configs": rows, "fields": named, "taken": one.kernel, "library": MADE_WITH}

    def specialization(self, problem: Problem, config: Config, target: Target) -> str:
        one = of(problem)
        if config.family == CUTE.family:  # a kernel serves all sizes
            activation = one.activation if is_fused(config.options()) else ""
            return "_".join(filter(None, (one.dtype, "bias" * one.bias, activation)))
        text = launch.specialization(one, config.to_dict()["BLOCK_SIZE_M"])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def compile_cost(self, config: Config) -> float:
        """A relative compile time: the number of the tile's matrix instructions per warp."""
        fields = config.to_dict()
        tile = fields["BLOCK_SIZE_M"] * fields["BLOCK_SIZE_N"] * fields["BLOCK_SIZE_K"]
        return float(tile / fields.get("num_warps", 4))

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        one = of(problem)
        if launchers.of_config(one, config) is CUTE:
            return _sorted_calls(script, config, one, None, 1)
        made = {
            part: operands.blank(one, part, config["BLOCK_SIZE_M"], launch.sides(config, part), blank)
            for part in launch.PARTS
        }
        return _calls(script, config, one, made, 1)

    def require_memory(self, problem: Problem, rotating_bytes: int, device: str) -> None:
        if device == "cpu":
            return
        import torch

        backend = "hip" if torch.version.hip else "cuda"
        by_tma = backend == "cuda" and torch.cuda.get_device_capability() >= FIRST_WITH_TMA
        free, needed = torch.cuda.mem_get_info()[0], operands.bytes_of(of(problem), backend, by_tma=by_tma)
        if needed > free:
            raise MemoryError(f"the operands take {needed >> 20} MiB, {free >> 20} MiB are free")

    def operands(self, problem: Problem, rotating_bytes: int, init_type: str, seed: int, device: str) -> Sequence[Any]:
        """One set per draw of the routing; calls rotate through them in the same order for every configuration."""
        return operands.make(of(problem), seed, device)

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        if launchers.of_config(of(problem), config) is CUTE:
            return _sorted_calls(script, config, of(problem), operands, num_sms)
        return _calls(script, config, of(problem), operands.of_config(config), num_sms)

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        return companions.check_problems(of(problem), config, interpreted=interpreted)

    def check(self, script: ModuleType, problem: Problem, name: str, seed: int, device: str) -> Verdict:
        from gemm_tuner.moe.check import check

        return check(self, script, of(problem), name, seed, device)

    def examiner(self, problem: Problem, seed: int, device: str) -> Examiner:
        from gemm_tuner.moe.check import examiner

        return examiner(self, of(problem), seed, device)

    def files_of(self, problem: Problem) -> tuple[str, ...]:
        """Recorded routings."""
        return routing.files(of(problem).routing)

    def calls_of_a_sample(self, problem: Problem) -> int:
        """Every draw of every routing."""
        return len(of(problem).routing) * of(problem).seeds

    def found_in_finals(
        self, problem: Problem, times: Sequence[Mapping[str, Sequence[float]]], chosen: str
    ) -> Mapping[str, Any]:
        found = sensitivity.is_sensitive(times, chosen, len(of(problem).routing))
        return {} if found is None else {"routing_sensitive": found}

    def predict_us(self, columns: Any, problem: Problem, device: Device) -> Any:
        from gemm_tuner.space import row_groups  # imports pandas, which processes that launch do not need

        found = np.zeros(len(columns.family))
        for _, rows in row_groups.rows_by_family(columns.family):
            found[rows] = model.predict_us(row_groups.SomeRows(columns, rows), of(problem), device)
        return found

    def roofline_us(self, problem: Problem, device: Device) -> float | None:
        return model.roofline_us(of(problem), device)

    def features(self, candidates: Any, problem: Problem, device: Device, families: Sequence[str]) -> Any:
        return features.features(candidates, families)


def _calls(
    script: ModuleType, config: dict[str, Any], problem: MoeProblem, tensors: Mapping[str, launch.Tensors], num_sms: int
) -> list[Launch]:
    """The launches of both GEMMs, in order."""
    found: list[Launch] = []
    for part in launch.PARTS:
        if launchers.of_config(problem, config) is OWN:
            values = own_arguments.values(problem, config, part, tensors[part])
        else:
            values = launch.values(problem, config, part, tensors[part], script.ARCH)
        symbol = launch.symbol(problem, config, part)
        grid, options = launch.grid(problem, config, part, num_sms), launch.options(config, part)
        found.append(script.call(symbol, grid, values, options))
    return found


def _sorted_calls(
    script: ModuleType, config: dict[str, Any], problem: MoeProblem, operands: MoeOperands | None, num_sms: int
) -> list[Launch]:
    """As ``_calls``, of rows sorted by expert. operands: None for compiling only."""
    found: list[Launch] = []
    for part in launch.PARTS:
        given = None if operands is None else sorted_rows.tensors(operands, config, part)
        values = cute_arguments.values(problem, config, part, given, num_sms)
        found.append(script.call(cute_arguments.symbol(config, part), (), values, {}))
    return found


def _named(predicates: Sequence[Callable[[Any, Problem, Device], Any]]) -> tuple[tuple[str, str, Any], ...]:
    return tuple((one.__name__, " ".join((one.__doc__ or "").split()), one) for one in predicates)


WORKLOAD = MoeWorkload()
