"""``--update``: the configurations of an older results file, which a new one must beat clearly to take their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gemm_tuner.core.records import Config, Device, Problem, Status
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.space.size_state import SizeState


@dataclass(frozen=True)
class BaselineConfigs:
    """older: by problem, for the sizes that have one. least_pct: what a new one must be faster by."""

    older: Mapping[Problem, Config]
    least_pct: float

    def add(self, states: Iterable[SizeState], device: Device) -> None:
        """Adds the older configurations to the candidates of their sizes, also those that the rules would cut."""
        for state in states:
            config = self.older.get(state.problem)
            if config is not None:
                state.add(config, prepare.predicted_us(state.problem, config, device))

    def added(self, state: SizeState, finalists: list[str]) -> list[str]:
        """The finalists and the older configuration; not one that an earlier stage has ruled out."""
        config = self.older.get(state.problem)
        if config is None or config.name in finalists:
            return finalists
        return [*finalists, config.name] if state.may_run(config.name) else finalists

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
        """The order in which to choose: the older configuration before all that do not beat it clearly."""
        config = self.older.get(state.problem)
        if config is None or config.name not in finals.published.get(state.problem, {}):
            return order
        others = [name for name in order if name != config.name]
        better = [name for name in others if finals.is_clearly_faster(state, name, config.name, self.least_pct)]
        rest = [name for name in order if name not in better and name != config.name]
        return [*better, config.name, *rest]
