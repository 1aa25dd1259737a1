"""What a new configuration must beat clearly to take its place: that of an older results file (``--update``), or what
is launched without tuning."""

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
    """older: by problem, for the sizes that have one. least_pct: what a new one must be faster by. defaults: of the
    sizes whose default is known; beyond noise is enough to beat one. Where a size has both, both stand in the finals,
    and the older one counts."""

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
        """What always has a place in the finals of a size, what is to be beaten first."""
        return [one[problem] for one in (self.older, self.defaults) if problem in one]

    def add(self, states: Iterable[SizeState], device: Device) -> None:
        """Adds them to the candidates of their sizes, also those that the rules would cut."""
        for state in states:
            for config in self.standing(state.problem):
                state.add(config, prepare.predicted_us(state.problem, config, device))

    def added(self, state: SizeState, finalists: list[str]) -> list[str]:
        """The finalists and these; not one that an earlier stage has ruled out."""
        names = [config.name for config in self.standing(state.problem) if state.may_run(config.name)]
        return list(dict.fromkeys([*finalists, *names]))

    def note_chosen(self, state: SizeState, name: str, log: RunLog) -> None:
        """Counts whether the older configuration of a size kept its place."""
        config = self.older.get(state.problem)
        if config is not None:
            why = state.why_not(config.name)
            if why:
                log.notes.setdefault("older_not_run", {})[state.problem.key] = why
            counts = log.notes.setdefault("updated", {"kept": 0, "replaced": 0})
            counts["kept" if config.name == name else "replaced"] += 1

    def unbeaten(self, state: SizeState) -> str:
        """Why the older configuration of a size keeps its row without a new time: it is in no trace, so that nothing
        beat it; "" where that is not so."""
        config = self.older.get(state.problem)
        missing = config is not None and config.name in state.named(Status.MISSING_IN_TRACE)
        return "the older configuration was not beaten: the profiler's trace lacks it" if missing else ""

    def preferred(self, state: SizeState, order: list[str], finals: Finals) -> list[str]:
        """The order in which to choose: what is to be beaten before all that do not beat it clearly."""
        published = finals.published.get(state.problem, {})
        config = next((one for one in self.standing(state.problem) if one.name in published), None)
        if config is None:
            return order
        least_pct = self.least_pct if state.problem in self.older else 0.0
        others = [name for name in order if name != config.name]
        better = [name for name in others if finals.is_clearly_faster(state, name, config.name, least_pct)]
        rest = [name for name in order if name not in better and name != config.name]
        return [*better, config.name, *rest]
