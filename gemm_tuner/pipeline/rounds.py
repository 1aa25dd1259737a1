"""The rounds of a search: compile what it asks for, time it, let it learn; the next is compiled meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gemm_tuner.compile.compile_tasks import interleaved
from gemm_tuner.compile.same_code import duplicates
from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.launch.plan import SCREEN, Work
from gemm_tuner.measure import drift
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.supervise import at_each_end
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.search import Proposals, Search, SizeView
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.store.store import Store

# Share of the budget left at the start of a round that compiling may take: what is compiled must also be timed.
COMPILE_SHARE = 0.5
# Upper bound of rounds; a search that exceeds it has a bug.
MOST_ROUNDS = 10_000


@dataclass
class Screened:
    """The timings of a round.

    duplicates: by size, name -> name of the configuration with the same machine code that was timed for it.
    homes:      which GPU each size was on when the round began.
    """

    compiled: Named
    duplicates: list[tuple[SizeState, dict[str, str]]]
    homes: dict[Problem, int]
    timings: dict[Key, Timing] = field(default_factory=dict)


@dataclass
class Rounds:
    """The steps of a search round: propose, compile, screen, learn. The search ends when nothing is proposed.

    compiling: None where nothing is compiled before it is timed. jobs: profiler starts of a round on each GPU.
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
    number: int = 0

    def propose(self) -> Named:
        """What the search asks for next; empty when it has ended or the budget for screening is spent.

        Raises KeyboardInterrupt when the run is to end, AssertionError for a search that never ends.
        """
        self.limits.interruption.check()
        self.fleet.prepare()
        with self.log.stage("search"):
            proposed = self.search.propose([view_of(one) for one in self.states], self.gpus.device)
        if not proposed or not self.limits.pace.has_time_to_screen(len(self.states)):
            return []
        self.number += 1
        if self.number >= MOST_ROUNDS:
            raise AssertionError(f"{self.search!r} asked for more than {MOST_ROUNDS} rounds")
        self.log.count("search rounds", 1)
        return self._by_state(proposed)

    def compile(self, asked: Named) -> Named:
        """Compiles what was asked for, and returns what of it can be timed.

        What the search is likely to ask for next is queued before screening begins, so that the workers are busy while
        the GPU times: afterwards they would wait for it, and it for them.
        """
        if self.compiling is None:
            return remaining(asked)
        now, first_kernel_s = self.limits.budget.clock(), self.limits.pace.start_up_s()
        until = now + COMPILE_SHARE * (self._until - first_kernel_s - now)
        self.compiling.compile_sizes(asked, "compile", until)
        asked = remaining(asked)
        self.compiling.prefetch(interleaved(self._likely_after(asked)))
        return [(state, [name for name in names if state.is_compiled(name)]) for state, names in asked]

    def screen(self, compiled: Named) -> Screened:
        """Times a few launches of each configuration, fewer of clear losers, and one of several with the same code.

        Timings are stored as they arrive, with the GPU that they are from. The states are updated by ``learn``,
        after all GPUs have ended: a GPU that fails hands its sizes over, and then its timings no longer count.
        """
        same_as = [(state, self._duplicates(state, names)) for state, names in compiled]
        pairs = zip(compiled, same_as, strict=True)
        once = [(state, [name for name in names if name not in same]) for (state, names), (_, same) in pairs]
        once = [(state, names) for state, names in once if names]
        before = dict(self.fleet.home)
        self.fleet.deal({state.problem: cost_of(state, names) for state, names in once})
        screened = Screened(compiled, same_as, {**self.fleet.home, **before})
        work = [self._work(state, names) for state, names in once]
        total, labels = sum(len(one.entries) for one in work), self.gpus.labels

        def found(timings: dict[Key, Timing]) -> None:
            gpus = {problem: labels[gpu] for problem, gpu in self.fleet.home.items()}
            self.store.add_timings(timings.values(), SCREEN, gpus.__getitem__)
            screened.timings.update(timings)

        if total:
            with self.gpus.held(), self.log.step("screen", total, f"screen, round {self.number}") as step:
                plans = self.planner.screen(self.jobs, self.limits.budget.unix_time(self._until))
                runs = self.fleet.time(work, plans, at_each_end(step.advance), found)
            for run in runs:
                self.log.count_run(run)
                self.limits.learn(run)
                screened.timings.update(run.timings)
        return screened

    def learn(self, screened: Screened) -> None:
        """Records a round in the states of its sizes, from which the search proposes the next.

        First all timings are entered, then those of sizes whose GPU failed are dropped (another GPU screens these sizes
        anew), and only then are times copied to duplicates, so that no copy outlives its original. Without a budget, a
        configuration without a timing is missing in the trace; with one, its time was over. Raises KeyboardInterrupt
        when the run is to end.
        """
        by_problem = {state.problem: state for state in self.states}
        for (problem, _), timing in screened.timings.items():  # those of a GPU that failed afterwards too
            by_problem[problem].record_timing(timing, SCREEN)
        moved = {problem for problem, gpu in self.fleet.home.items() if gpu != screened.homes.get(problem, gpu)}
        for problem in moved & by_problem.keys():
            self.store.drop_other_gpus(problem, SCREEN, self.gpus.labels[self.fleet.home[problem]])
            by_problem[problem].forget_screening({t.name for t in self.store.timings(problem, SCREEN)})
        for state, same in screened.duplicates:
            for name, timed in same.items():
                state.copy_timing(timed, name)
        self.limits.interruption.check()
        if not self.limits.budget.bounded:
            for state, names in remaining(screened.compiled):
                for name in names if state.problem not in moved else ():  # those are asked for again
                    state.record(name, Status.MISSING_IN_TRACE, "the launcher ended without it")

    @property
    def _until(self) -> float:
        """When the last kernel of screening may be launched: a time of the budget's clock."""
        return self.limits.pace.screen_deadline_until(len(self.states))

    def _by_state(self, proposals: Proposals) -> Named:
        by_problem = {state.problem: state for state in self.states}
        return [(by_problem[problem], list(names)) for problem, names in proposals.items()]

    def _likely_after(self, asked: Named) -> Named:
        """What the search may ask for after this round, the likeliest first."""
        running = {state.problem: names for state, names in asked}
        views = [view_of(state) for state in self.states]
        count = max((len(names) for names in running.values()), default=0)
        return self._by_state(self.search.likely_next(views, self.gpus.device, running, count))

    def _duplicates(self, state: SizeState, names: list[str]) -> dict[str, str]:
        """Those of the names that are the same kernel as another which is timed already, or in this round."""
        same = duplicates(state, self.gpus.device.num_sms)
        running = set(names)
        return {n: same[n] for n in names if n in same and (same[n] in running or state.ended(same[n]))}

    def _work(self, state: SizeState, names: list[str]) -> Work:
        """Predicted best first, so that losers are known as such early."""
        in_order = sorted(names, key=lambda name: state.predicted_us[name])
        work = replace(self.planner.work(state, in_order), best_us=state.best_screened_us())
        name, us = drift.reference_of(self.store.timings(state.problem, SCREEN), state.problem)
        if not name:
            return work
        return replace(work, reference=self.planner.work(state, [name]).entries, reference_us=us)


def remaining(asked: Named) -> Named:
    """Those without a status yet."""
    return [(state, [name for name in names if not state.ended(name)]) for state, names in asked]


def cost_of(state: SizeState, names: list[str]) -> float:
    """Predicted time of a size's screening, up to a factor; launching costs something too."""
    return sum(state.predicted_us[name] + 150.0 for name in names)


def view_of(state: SizeState) -> SizeView:
    """What a search may see of a size."""
    return SizeView(state.problem, state.candidates(), state.screened_us(), state.failed())
