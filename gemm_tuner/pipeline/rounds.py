"""The rounds of a search: compile what it asks for, time it, let it learn; the next is compiled meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gemm_tuner.compile.same_code import duplicates
from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.launch.plan import SCREEN, Work
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.search import Proposals, Search, SizeView
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store.store import Store

Asked = list[tuple[SizeState, list[str]]]
# Of what a budget leaves when a round begins, what compiling may take: what is compiled must be timed too.
COMPILE_SHARE = 0.5
# Rounds that a search may ask for; a search that never ends is a bug.
MOST_ROUNDS = 10_000


@dataclass
class Rounds:
    """Screens what a search asks for until it asks for nothing, or the budget is spent.

    compiling: None where nothing is compiled before it is timed. jobs: profiler starts of a round, on each GPU.
    """

    search: Search
    states: Sequence[SizeState]
    planner: Planner
    fleet: Fleet
    gpus: Gpus
    store: Store
    limits: Limits
    log: RunLog
    compiling: CompileStage | None = None
    jobs: int = 1
    # Sizes whose GPU failed in the last round, and that another one screens anew.
    _moved: set[Problem] = field(default_factory=set, init=False)

    def run(self) -> None:
        by_problem = {state.problem: state for state in self.states}
        for number in range(1, MOST_ROUNDS):
            self.limits.interruption.check()
            with self.log.stage("search"):
                proposed = self.search.propose([view_of(one) for one in self.states], self.gpus.device)
            if not proposed or not self.limits.pace.has_time_to_screen(len(self.states)):
                return
            asked = [(by_problem[problem], names) for problem, names in proposed.items()]
            self.log.count("search rounds", 1)
            self._round(number, asked)
        raise AssertionError(f"{self.search.name} asked for more than {MOST_ROUNDS} rounds")

    @property
    def _until(self) -> float:
        """When the last kernel of screening must have been launched: a time of the budget's clock."""
        return self.limits.pace.screen_deadline_until(len(self.states))

    def _round(self, number: int, asked: Asked) -> None:
        if self.compiling:
            now, first_kernel_s = self.limits.budget.clock(), self.limits.pace.start_up_s()
            until = now + COMPILE_SHARE * (self._until - first_kernel_s - now)
            self.compiling.compile_sizes(asked, "compile", until)
        asked = [(state, [name for name in names if not state.ended(name)]) for state, names in asked]
        if self.compiling:
            compiled = [(state, [n for n in names if state.is_compiled(n)]) for state, names in asked]
        else:
            compiled = asked
        twins = [(state, self._twins(state, names)) for state, names in compiled]
        once = [
            (state, [name for name in names if name not in same])
            for (state, names), (_, same) in zip(compiled, twins, strict=True)
        ]
        if self.compiling:
            self.compiling.prefetch(self._next(asked))
        self._screen(number, [(state, names) for state, names in once if names])
        for state, same in twins:
            for name, twin in same.items():
                state.copy_timing(twin, name)
        self.limits.interruption.check()
        if not self.limits.budget.bounded:  # else the time of a size was over
            for state, names in compiled:
                for name in names if state.problem not in self._moved else ():  # those are asked for again
                    if not state.ended(name):
                        state.record(name, Status.MISSING_IN_TRACE, "the launcher ended without it")

    def _twins(self, state: SizeState, names: list[str]) -> dict[str, str]:
        """Those of the names that are the same kernel as another which is timed already, or in this round."""
        same = duplicates(state, self.gpus.device.num_sms)
        running = set(names)
        return {n: same[n] for n in names if n in same and (same[n] in running or state.ended(same[n]))}

    def _next(self, asked: Asked) -> Asked:
        """What the search may ask for after this round, the likeliest first."""
        by_problem = {state.problem: state for state in self.states}
        running = {state.problem: names for state, names in asked}
        views = [view_of(state) for state in self.states]
        count = max((len(names) for names in running.values()), default=0)
        likely: Proposals = self.search.likely_next(views, self.gpus.device, running, count)
        return [(by_problem[problem], names) for problem, names in likely.items()]

    def _screen(self, number: int, asked: Asked) -> list[StageRun]:
        """A few launches of each; clear losers get fewer."""
        homes = dict(self.fleet.home)
        self.fleet.deal({state.problem: cost_of(state, names) for state, names in asked})
        homes = {**self.fleet.home, **homes}
        work = [self._work(state, names) for state, names in asked]
        total = sum(len(one.entries) for one in work)
        if not total:
            return []
        by_problem = {state.problem: state for state in self.states}
        labels, entered = self.gpus.labels, dict[Key, Timing]()

        def found(timings: dict[Key, Timing]) -> None:
            gpus = {problem: labels[gpu] for problem, gpu in self.fleet.home.items()}
            self.store.add_timings(timings.values(), SCREEN, gpus.__getitem__)
            entered.update(timings)

        with self.gpus.held(), self.log.step("screen", total, f"screen, round {number}") as step:
            plans = self.planner.screen(self.jobs, self.limits.budget.unix_time(self._until))
            runs = self.fleet.time(work, plans, step.on_event, found)
        for run in runs:
            self.log.count_run(run)
            self.limits.learn(run)
            entered.update(run.timings)
        for (problem, _), timing in entered.items():  # those of a GPU that failed afterwards too
            by_problem[problem].record_timing(timing, SCREEN)
        self._moved = {problem for problem, gpu in self.fleet.home.items() if gpu != homes[problem]}
        for problem in self._moved & by_problem.keys():
            self.store.drop_other_gpus(problem, SCREEN, labels[self.fleet.home[problem]])
            by_problem[problem].forget_screening({t.name for t in self.store.timings(problem, SCREEN)})
        return runs

    def _work(self, state: SizeState, names: list[str]) -> Work:
        """Predicted best first, so that losers are known as such early."""
        in_order = sorted(names, key=lambda name: state.predicted_us[name])
        return replace(self.planner.work(state, in_order), best_us=state.best_screened_us())


def cost_of(state: SizeState, names: list[str]) -> float:
    """Predicted time of a size's screening, up to a factor; launching costs something too."""
    return sum(state.predicted_us[name] + 150.0 for name in names)


def view_of(state: SizeState) -> SizeView:
    """What a search may see of a size."""
    return SizeView(state.problem, state.candidates(), state.screened_us(), state.failed())
