"""Selects the finalists of each size, and the extent of the finals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemm_tuner.consumers.server import Server
from gemm_tuner.core.workload import workload_of
from gemm_tuner.decide.finals_plan import FinalsPlan, fitted
from gemm_tuner.launch.plan import TIRING_CALL_US
from gemm_tuner.pipeline import rivals, serving, substitutes
from gemm_tuner.pipeline.baseline_configs import BaselineConfigs
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.prepare import best_predicted
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.space.space import table_of

# Kernels longer than this can reach the GPU's power limit, which makes the sequential screening less accurate than the
# difference between the best (docs/tuning.md). So these sizes have more finalists; finals are interleaved.
POWER_LIMITED_US = 100.0
MORE_FINALISTS = 2
# Number of additional finals of a size without a correct finalist, each with the next best of screening.
MORE_FINALS = 3


@dataclass(frozen=True)
class FinalistPicker:
    """Selects finalists. states: all sizes of the run."""

    states: Sequence[SizeState]
    options: RunOptions
    limits: Limits
    older: BaselineConfigs
    servers: Sequence[Server]

    @property
    def plan(self) -> FinalsPlan:
        """The extent of this run's finals, reduced to fit the budget."""
        whole, sizes = FinalsPlan(finalists=self.options.finalists, rounds=self.options.iters), len(self.states)
        if not self._is_bounded:
            return whole
        budget, pace = self.limits.budget, self.limits.pace
        checks_s = (1 + len(self.servers)) * pace.check().of(sizes)
        tiring = sum(state.best_screened_us() > TIRING_CALL_US for state in self.states)
        return fitted(whole, sizes, tiring, budget.left_s() - checks_s, pace.start())

    @property
    def _is_bounded(self) -> bool:
        return self.limits.budget.bounded and self.limits.pace.measured

    def best(self, states: Iterable[SizeState]) -> Named:
        """The finalists of these sizes: the best of screening, the baselines, and candidates for servers and for
        substitutes."""
        return self.with_others([(state, self.older.added(state, self._best(state))) for state in states])

    def _best(self, state: SizeState) -> list[str]:
        """The fastest of screening; the fastest by the model if the budget left no time for screening."""
        own = state.own
        if self._is_bounded and not state.timed():
            return best_predicted(state, [name for name in own if state.may_run(name)], self.plan.finalists)
        return state.fastest(self.places(state), own)

    def next_best(self, state: SizeState, repeats: int) -> list[str]:
        """The finalists of a size after ``repeats`` additional finals: the next best of screening. Configurations that
        were stopped early come last (they may have been compared with a wrong result). Empty if there is no time."""
        pace = self.limits.pace
        if repeats == MORE_FINALS or not pace.budget.has_time_for(pace.start().start_s + pace.check().of(1)):
            return []
        count, own = self.places(state), state.own
        whole = state.fastest(count, own)
        return [*whole, *(name for name in state.timed() if name in own and name not in whole)][:count]

    def with_others(self, picked: Named) -> Named:
        """The finalists, rivals, and the candidates for servers and for substitutes."""
        with_rivals = [(state, rivals.added(state, names)) for state, names in picked]
        with_substitutes = [(state, substitutes.added(state, names)) for state, names in with_rivals]
        return [(state, serving.added(self.servers, state, names)) for state, names in with_substitutes]

    def places(self, state: SizeState) -> int:
        """The number of finalists of a size; larger if screening is inaccurate (POWER_LIMITED_US)."""
        power_limited = state.best_screened_us() > POWER_LIMITED_US
        return self.plan.finalists * (MORE_FINALISTS if power_limited else 1)

    def compiled(self, finalists: Named, compiling: CompileStage | None) -> Named:
        """The finalists that compile in time; finalists that were not screened are not compiled yet."""
        if compiling is None or not finalists:
            return finalists
        budget, pace = self.limits.budget, self.limits.pace
        if budget.bounded:
            self._compile_first(finalists, compiling)
        until = budget.until(pace.start().start_s + pace.check().of(len(self.states)))
        compiling.compile_sizes(finalists, "compile for finals", until)

        def may_run(state: SizeState, name: str) -> bool:
            return state.may_run(name) and (state.has_binary(name) or not budget.bounded)

        return [(state, [name for name in names if may_run(state, name)]) for state, names in finalists]

    def _compile_first(self, finalists: Named, compiling: CompileStage) -> None:
        """Compiles one kernel for each size that has none, without a time limit, so that every size can be timed."""
        clock, busy_s = self.limits.budget.clock, compiling.busy_s
        firsts = [(state, names[:1]) for state, names in finalists if not any(map(state.has_binary, names))]
        begun = clock()
        compiling.compile_sizes(firsts, "compile for finals")
        if compiling.busy_s > busy_s:
            self.limits.pace.count_compiles(len(firsts), clock() - begun)


def recombined(state: SizeState) -> list[str]:
    """Adds what ``Workload.recombined`` makes of a size's screened configurations; returns their names."""
    screened = [
        (state.kept[name], tuple(state.rows[name]["kernels_us"]))
        for name in state.fastest(len(state.kept))
        if "kernels_us" in state.rows[name]
    ]
    made = workload_of(state.problem.kind).recombined(state.problem, screened) if screened else []
    new = [config for config in made if config.name not in state.kept]
    if new:
        state.extend(table_of(new), new, [0.0] * len(new), searched=False)
    return [config.name for config in made]
