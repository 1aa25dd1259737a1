"""What most kinds of problem answer to ``core.workload.Workload``; a workload overrides where its kind differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gemm_tuner.core.axes import Axis, OwnSpace
from gemm_tuner.core.entries import Entries
from gemm_tuner.core.judges import CheckEach, Checks, Examiner, Jury
from gemm_tuner.core.records import Config, Device, Problem, Target


class WorkloadDefaults:
    """Triton kernels that change none of their operands, with a reference and a space in files."""

    language = "triton"
    has_baseline_call = True
    idle_flags: Mapping[str, str] = {}
    sets_are_apart = True
    hashes_launches = False
    configs_are_given = False
    entries: Entries | None = None
    search_axes: Mapping[str, Axis] = {"num_warps": Axis(1.5), "num_stages": Axis(0.7, any_step=True)}
    most_searched: float = math.inf
    label_meanings: Mapping[str, str] = {}
    config_legend = ""

    def label_parts(self, problem: Problem) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        return (problem.subject,), problem.shape, ()

    def short_config(self, name: str) -> str:
        return name

    def whole_names(self, short: str) -> tuple[str, ...]:
        return ()

    def on_device(self, problems: Sequence[Problem], device: Device) -> list[Problem]:
        return list(problems)

    def own_space(self, problems: Sequence[Problem], device: Device) -> OwnSpace | None:
        return None

    def compile_work(self, candidates: Any, problem: Any, target: Target) -> tuple[Any, Any] | None:
        return None

    def recombined(self, problem: Problem, screened: Sequence[tuple[Config, tuple[float, ...]]]) -> list[Config]:
        return []

    def default_config(self, problem: Problem, device: Device) -> Config | None:
        return None

    def can_win(self, problem: Problem, config: Config) -> bool:
        return not config.is_of_a_server

    def rival_key(self, problem: Problem, config: Config) -> str:
        return "own_kernel"

    def start_worker(self) -> None: ...

    def before_call(self, problem: Problem, operands: Any) -> Callable[[], None] | None:
        return None

    def derived(self, problem: Problem, config: Config, device: Device) -> Mapping[str, Any]:
        return {}

    def files_of(self, problem: Problem) -> tuple[str, ...]:
        return ()

    def calls_of_a_sample(self, problem: Problem) -> int:
        return 1

    def deciding(self, problem: Problem, samples_us: tuple[float, ...]) -> tuple[float, ...]:
        return samples_us

    def found_in_finals(
        self, problem: Problem, times: Sequence[Mapping[str, Sequence[float]]], chosen: str
    ) -> Mapping[str, Any]:
        return {}

    def prepare_check(self, problem: Any, device: str) -> None: ...

    def examiner(self: Checks, problem: Any, seed: int, device: str) -> Examiner:
        return CheckEach(self, problem, seed, device)

    def compares_configs(self, problem: Problem) -> bool:
        return False

    def jury(self, problem: Problem, seed: int, device: str) -> Jury:
        raise NotImplementedError(f"a {problem.kind} problem has a reference")
