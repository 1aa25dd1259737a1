"""Which configurations of a size come into its finals, and how long these may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemm_tuner.decide.finals_plan import FinalsPlan, fitted
from gemm_tuner.launch.plan import TIRING_CALL_US
from gemm_tuner.pipeline import serving
from gemm_tuner.pipeline.baseline_configs import BaselineConfigs
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.prepare import best_predicted
from gemm_tuner.pipeline.settings import Settings
from gemm_tuner.space.size_state import Named, SizeState

# Kernels of more than this can drive a GPU into its power limit, where screening one after the other misjudges by
# more than the best differ (docs/tuning.md): more of them come into the finals, which are interleaved.
POWER_LIMITED_US = 100.0
MORE_FINALISTS = 2
# Further finals of a size of which no finalist is right, each of the next best by screening.
MORE_FINALS = 3


@dataclass(frozen=True)
class FinalistPicker:
    """states: all sizes of the run."""

    states: Sequence[SizeState]
    settings: Settings
    limits: Limits
    older: BaselineConfigs
    servers: Sequence[serving.Server]

    @property
    def plan(self) -> FinalsPlan:
        """How much the finals of this run do: less where its budget leaves little time."""
        whole, sizes = FinalsPlan(finalists=self.settings.finalists, rounds=self.settings.iters), len(self.states)
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
        """The finalists of these sizes: the best by screening, the older configuration, what servers launch."""
        return [
            (state, serving.added(self.servers, state, self.older.added(state, self._best(state)))) for state in states
        ]

    def _best(self, state: SizeState) -> list[str]:
        """A size's fastest by screening. Those that the model finds fastest where a budget left no time to screen
        any."""
        own = state.own
        if self._is_bounded and not state.timed():
            return best_predicted(state, [name for name in own if state.may_run(name)], self.plan.finalists)
        return state.fastest(self.places(state), own)

    def next_best(self, state: SizeState, repeats: int) -> list[str]:
        """The next finalists of a size after so many further finals, by their screening. Those that were stopped early
        come last: what made losers of them may be wrong. None where there is no time for further finals."""
        pace = self.limits.pace
        if repeats == MORE_FINALS or not pace.budget.has_time_for(pace.start().start_s + pace.check().of(1)):
            return []
        count, own = self.places(state), state.own
        whole = state.fastest(count, own)
        return [*whole, *(name for name in state.timed() if name in own and name not in whole)][:count]

    def with_servers(self, picked: Named) -> Named:
        """The finalists and what servers launch."""
        return [(state, serving.added(self.servers, state, names)) for state, names in picked]

    def places(self, state: SizeState) -> int:
        """How many of a size come into its finals: more where screening tells them apart badly."""
        power_limited = state.best_screened_us() > POWER_LIMITED_US
        return self.plan.finalists * (MORE_FINALISTS if power_limited else 1)

    def compiled(self, finalists: Named, compiling: CompileStage | None) -> Named:
        """The finalists less those that do not compile, or not in time: not all have been screened."""
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
        """One kernel of each size that has none yet, however long that takes: without it there is nothing to time."""
        clock, busy_s = self.limits.budget.clock, compiling.busy_s
        firsts = [(state, names[:1]) for state, names in finalists if not any(map(state.has_binary, names))]
        begun = clock()
        compiling.compile_sizes(firsts, "compile for finals")
        if compiling.busy_s > busy_s:
            self.limits.pace.count_compiles(len(firsts), clock() - begun)
