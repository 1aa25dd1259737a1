"""The rounds of a search: propose, compile, screen, learn; the likely next proposals are compiled during screening."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from gemm_tuner.compile.compile_tasks import interleaved
from gemm_tuner.compile.same_code import duplicates
from gemm_tuner.core.records import Config, Problem, Status, Timing
from gemm_tuner.launch.plan import SCREEN, Work
from gemm_tuner.measure import drift
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.offers import Offers, nothing
from gemm_tuner.pipeline.opens_ahead import OpensAhead
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.pipeline.round_parts import (
    by_compile_work,
    cost_of,
    even_parts,
    joined,
    lasts_longer_than_a_choice,
    merged,
    ready_first,
    remaining,
    view_of,
)  # fmt: skip
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.screened import Screened
from gemm_tuner.search import Proposals, Search, SizeView
from gemm_tuner.space.size_state import Named, OfSize, SizeState
from gemm_tuner.store.store import Store

# The largest share of the remaining budget that compilation may take, because what is compiled must also be timed.
COMPILE_SHARE = 0.5
# So many times a round is compiled ahead, of what the search may ask for next. Twice holds 92 % of the kernels that are
# asked for, once 81 % (benchmarks/prefetch_hits.py, four sizes). What is asked for always goes first.
LIKELY_TIMES = 2
# A part of a round is timed alone only if compiling the next one takes so long.
WORTH_S = 1.0
# Upper bound of rounds; a search that exceeds it has a bug.
MOST_ROUNDS = 10_000


@dataclass
class Rounds:
    """The steps of a search round: propose, time, learn. The search ends when nothing is proposed.

    compiling: None if nothing is compiled before it is timed. jobs: profiler starts of a round per GPU.
    of_run:    all sizes of the run, also those that an earlier start of it has finished; ``states`` if it is empty.
    opens:     what launchers do while nothing is timed.
    imports:   begins imports of the search's later rounds, for when this interpreter waits; called again, nothing.
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
    of_run: Sequence[SizeState] = ()
    opens: OpensAhead | None = None
    imports: Callable[[], None] = nothing
    number: int = 0
    _best_us: dict[Problem, float] = field(default_factory=dict)  # of this round's parts, too; 0 if unknown
    _timed: dict[Problem, set[str]] = field(default_factory=dict)  # by parts of this round, or tried to
    _likely: Named | None = None  # what the search may propose after this round; None if it is not chosen yet
    _offers: Offers = field(default_factory=Offers)

    def propose(self) -> Named:
        """The next proposals of the search; empty if it has ended or the budget for screening is used up.

        Raises KeyboardInterrupt if the run is to end, AssertionError for a search that does not terminate.
        """
        self.limits.interruption.check()
        self.fleet.prepare()
        self.log.passed("start launchers")
        if self.opens:
            self.opens.begin()
        with self.log.stage("search"):
            proposed = self._proposed()
        if not proposed or not self.limits.pace.has_time_to_screen(len(self.states)):
            return []
        self.number += 1
        if self.number >= MOST_ROUNDS:
            raise AssertionError(f"{self.search!r} asked for more than {MOST_ROUNDS} rounds")
        self.log.count("search rounds", 1)
        return self._by_state(proposed)

    def _proposed(self) -> Proposals:
        """The proposals of the search, which sees all sizes of the run: with those alone that are left, a resumed run
        would ask for others than an undisturbed one."""
        left = {one.problem for one in self.states}
        views = self._views()
        proposed = self.search.propose(views, self.gpus.device)
        mine = {problem: names for problem, names in proposed.items() if problem in left}
        if mine or not proposed:
            return mine
        # What is not known of a finished size stays so.
        return self.search.propose([one for one in views if one.problem in left], self.gpus.device)

    def _views(self) -> list[SizeView]:
        return [view_of(one) for one in self.of_run or self.states]  # in the run's order, which matters

    def time(self, asked: Named) -> Screened:
        """Compiles and screens the proposals; in parts, if more plans cost nothing: those first whose kernels are
        compiled, then those whose kernels take little to compile, so that the others are compiled meanwhile."""
        screened: list[Screened] = []
        before: Named = []
        self._best_us = {state.problem: state.best_screened_us() for state, _ in asked}
        self._timed, self._likely = {state.problem: set() for state, _ in asked}, None
        in_parts = self.compiling is not None and not self.limits.budget.bounded and self.fleet.stays
        groups = self._groups(asked, self.compiling) if in_parts and self.compiling else [asked]
        while groups:
            group, *groups = groups
            parts = even_parts(group, self.fleet.home, len(self.fleet.alive())) if in_parts else [group]
            screened += self._time_parts(parts, joined(groups), before)
            before = [*before, *group]
        return Screened.of_parts(screened)

    def _groups(self, asked: Named, compiling: CompileStage) -> list[Named]:
        """The proposals in the order in which their kernels are there to be timed."""
        *ready, rest = ready_first(
            asked,
            lambda state, name: compiling.has([(state.problem, state.kept[name])]),
            lambda some: compiling.wait_s(interleaved(some)),
            self.fleet.home,
            len(self.fleet.alive()),
        )
        return [*ready, *by_compile_work(rest, self.gpus.device.target)]

    def _time_parts(self, parts: list[Named], later: Named, before: Named) -> list[Screened]:
        """Compiles and screens parts one by one; together with one those after it that compile in no time.

        later, before: what else the round asks for, after and before these.
        """
        screened: list[Screened] = []
        while parts:
            part, *parts = parts
            compiled = self.compile(part, [*joined(parts), *later], before)
            before = [*before, *part]
            soon = self._soon(parts)
            if soon:
                with_it, parts = joined(parts[:soon]), parts[soon:]
                compiled = [*compiled, *self.compile(with_it, [*joined(parts), *later], before)]
                before = [*before, *with_it]
            screened.append(self.screen(compiled))
        return screened

    def _soon(self, parts: list[Named]) -> int:
        """How many of the next parts compile in no time, from the first on."""
        count, left_s = 0, 0.0
        for part in parts:
            left_s += self.compiling.left_s(interleaved(part)) if self.compiling is not None else 0.0
            if left_s >= WORTH_S:
                break
            count += 1
        return count

    def compile(self, asked: Named, then: Sequence[OfSize] = (), before: Sequence[OfSize] = ()) -> Named:
        """Compiles the proposals, and returns those that can be timed.

        The likely next proposals are chosen and queued while these are timed, so that compile workers and the GPU work
        at the same time. then, before: what else the round asks for, after and before these. Workers that have nothing
        left to compile go on with the former, and then with the likely next proposals, if they are chosen.
        """
        if self.compiling is None:
            return remaining(asked)
        if self.compiling.left_s(interleaved(asked)) >= WORTH_S:
            self.imports()
            if self.opens:
                self.opens.begin()
        self._offers.end()  # the choice reads what compiling records
        now, first_kernel_s = self.limits.budget.clock(), self.limits.pace.start_up_s()
        until = now + COMPILE_SHARE * (self._until - first_kernel_s - now)
        self.compiling.compile_sizes(asked, "compile", until, self._next_of(then))
        asked = remaining(asked)
        if then or lasts_longer_than_a_choice(asked, len(self.states)):
            self._offers.choose = partial(self._compile_ahead, self.compiling, [*before, *asked, *then], list(then))
        return [(state, [name for name in names if state.is_compiled(name)]) for state, names in asked]

    def _compile_ahead(self, compiling: CompileStage, asked: Named, then: Named) -> None:
        """Queues ``_next_of``; what may be proposed next is chosen once for all parts of the round."""
        if self._likely is None:
            self._likely = self._likely_after(asked)
        compiling.prefetch(self._next_of(then))

    def _next_of(self, then: Sequence[OfSize]) -> list[tuple[Problem, Config]]:
        """What else the round asks for, and then what the search may propose next, if that is chosen."""
        return [*interleaved([*then]), *interleaved(self._likely or [])]

    def screen(self, compiled: Named) -> Screened:
        """Times a few calls of each configuration (fewer of slow ones), and only one of several with equal code. The
        first processes of finals start meanwhile, since their start does not use the GPU.

        Timings are stored as they arrive, with their GPU. The states are updated later, by ``learn``, after all GPUs
        have ended: the sizes of a GPU that fails move to another, and its timings are then invalid.
        """
        compiled = merged(compiled)
        same_as = [(state, self._duplicates(state, names)) for state, names in compiled]
        pairs = zip(compiled, same_as, strict=True)
        once = [(state, [name for name in names if name not in same]) for (state, names), (_, same) in pairs]
        once = [(state, names) for state, names in once if names]
        for state, names in once:
            self._timed[state.problem].update(names)
        before = dict(self.fleet.home)
        self.fleet.deal({state.problem: cost_of(state, names) for state, names in once})
        screened = Screened(compiled, same_as, self.fleet.home | before)
        work = [self._work(state, names) for state, names in once]
        total = sum(len(one.entries) for one in work)

        def found(timings: dict[Key, Timing]) -> None:
            gpus = {problem: self.gpus.labels[gpu] for problem, gpu in self.fleet.home.items()}
            self.store.add_timings(timings.values(), SCREEN, gpus.__getitem__)
            screened.timings.update(timings)

        if total:
            self.log.passed("plan the screening")
            if self.opens:
                with self.log.waiting("open the GPUs"):
                    self.opens.end()
                self.log.passed("open the GPUs ahead")
            with self.gpus.held(), self.log.step("screen", total, f"screen, round {self.number}") as step:
                plans = self.planner.screen(self.jobs, self.limits.budget.unix_time(self._until))
                with self._offers.chosen_beside(self.imports) as heard_by:
                    runs = self.fleet.time(work, plans, heard_by(self.log.followed(step)), found)
            for run in runs:
                self.log.count_run(run, "screen")
                self.limits.learn(run)
                screened.timings.update(run.timings)
        for (problem, _), timing in screened.timings.items():
            if timing.status == Status.OK and timing.samples_us:
                us = median(timing.samples_us)
                self._best_us[problem] = min(us, self._best_us.get(problem) or us)
        return screened

    def learn(self, screened: Screened) -> None:
        """Records the results of a round in the states of the sizes, from which the search proposes the next round.

        The order matters: first all timings are recorded; then those of sizes whose GPU failed are dropped, because
        another GPU screens these sizes again; only then are times copied to duplicates, so that no copy of a dropped
        time remains. A configuration without a timing is MISSING_IN_TRACE, or, with a budget, was not reached in time.
        Raises KeyboardInterrupt if the run is to end.
        """
        self._offers.wait()  # the choice reads the states
        by_problem = {state.problem: state for state in self.states}
        for (problem, _), timing in screened.timings.items():  # including those of a GPU that failed afterwards
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
                for name in names if state.problem not in moved else ():  # sizes that moved are proposed again
                    state.record(name, Status.MISSING_IN_TRACE, "the launcher ended without it")
        self._offers.end()
        self.log.passed("learn from the screening")

    @property
    def _until(self) -> float:
        """The time (of the budget's clock) until which kernels of screening may be launched."""
        return self.limits.pace.screen_deadline_until(len(self.states))

    def _by_state(self, proposals: Proposals) -> Named:
        by_problem = {state.problem: state for state in self.states}
        return [(by_problem[problem], list(names)) for problem, names in proposals.items() if problem in by_problem]

    def _likely_after(self, asked: Named) -> Named:
        """What the search may propose after this round, most likely first."""
        running = {state.problem: names for state, names in merged(asked)}
        count = max((len(names) for names in running.values()), default=0)
        return self._by_state(self.search.likely_next(self._views(), self.gpus.device, running, LIKELY_TIMES * count))

    def _duplicates(self, state: SizeState, names: list[str]) -> dict[str, str]:
        """Those names whose kernel equals another that is already timed or is timed in this round."""
        timed = self._timed[state.problem]
        same, running = duplicates(state, self.gpus.device.num_sms, timed), timed.union(names)
        return {n: same[n] for n in names if n in same and (same[n] in running or state.ended(same[n]))}

    def _work(self, state: SizeState, names: list[str]) -> Work:
        """The work for a size, predicted best first, so that slow configurations can be stopped early."""
        work = self.planner.work(state, sorted(names, key=lambda name: state.predicted_us[name]))
        work = replace(work, best_us=self._best_us.get(state.problem, 0.0))
        name, us = drift.reference_of(self.store.timings(state.problem, SCREEN), state.problem)
        return replace(work, reference=self.planner.work(state, [name]).entries, reference_us=us) if name else work
