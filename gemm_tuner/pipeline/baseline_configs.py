"""Baselines that a new configuration must clearly beat to replace: the configuration of an older results file
(``--update``), or the one that is launched without tuning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gemm_tuner.core.records import Config, Device, Problem, Status
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.space.size_state import SizeState


@dataclass(frozen=True)
class BaselineConfigs:
    """The baselines of a run, by problem.

    older:     configurations of an older results file, which a new one must beat by ``least_pct``.
    defaults:  configurations that are launched without tuning, which a new one must beat beyond noise.
    If a size has both, both are finalists and the older one is the baseline.
    """

    older: Mapping[Problem, Config]
    least_pct: float
    defaults: Mapping[Problem, Config] = field(default_factory=dict)

    @classmethod
    def of(
        cls, older: Mapping[Problem, Config], least_pct: float, states: Iterable[SizeState], device: Device
    ) -> BaselineConfigs:
        found = {s.problem: workload_of(s.problem.kind).default_config(s.problem, device) for s in states}
        return cls(older, least_pct, {problem: config for problem, config in found.items() if config is not None})

    def standing(self, problem: Problem) -> list[Config]:
        """The configurations that are always finalists of a size; the baseline first."""
        return [one[problem] for one in (self.older, self.defaults) if problem in one]

    def add(self, states: Iterable[SizeState], device: Device) -> None:
        """Adds the baselines to the candidates of their sizes, even if rules reject them."""
        for state in states:
            for config in self.standing(state.problem):
                state.add(config, prepare.predicted_us(state.problem, config, device))

    def added(self, state: SizeState, finalists: list[str]) -> list[str]:
        """The finalists and the baselines that are candidates, without those that failed in an earlier stage."""
        names = [config.name for config in self.standing(state.problem)]
        there = [name for name in names if name in state.kept and state.may_run(name)]
        return list(dict.fromkeys([*finalists, *there]))

    def note_chosen(self, state: SizeState, name: str, log: RunLog) -> None:
        """Counts in the log whether the older configuration of a size was kept."""
        config = self.older.get(state.problem)
        if config is not None:
            why = state.why_not(config.name)
            if why:
                log.notes.setdefault("older_not_run", {})[state.problem.key] = why
            counts = log.notes.setdefault("updated", {"kept": 0, "replaced": 0})
            counts["kept" if config.name == name else "replaced"] += 1

    def unbeaten(self, state: SizeState) -> str:
        """Why the older configuration of a size keeps its row without a new time (it was missing in all traces, so it
        was not beaten); "" if that is not the case."""
        config = self.older.get(state.problem)
        missing = config is not None and config.name in state.named(Status.MISSING_IN_TRACE)
        return "the older configuration was not beaten: the profiler's trace lacks it" if missing else ""

    def preferred(self, state: SizeState, order: list[str], finals: Finals) -> list[str]:
        """The order in which to choose: the baseline before all configurations that do not clearly beat it."""
        published = finals.published.get(state.problem, {})
        config = next((one for one in self.standing(state.problem) if one.name in published), None)
        if config is None:
            return order
        least_pct = self.least_pct if state.problem in self.older else 0.0
        others = [name for name in order if name != config.name]
        better = [name for name in others if finals.is_clearly_faster(state, name, config.name, least_pct)]
        rest = [name for name in order if name not in better and name != config.name]
        return [*better, config.name, *rest]
