"""Tunes with a GPU: search rounds, finals, check; or plays a recording of that back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Problem, Status, Verdict
from gemm_tuner.decide import choose
from gemm_tuner.decide.finals_plan import FinalsPlan, fitted
from gemm_tuner.launch.plan import SCREEN, TIRING_CALL_US
from gemm_tuner.measure.fleet import Fleet, Launcher
from gemm_tuner.pipeline import resume, serving
from gemm_tuner.pipeline.baseline_configs import BaselineConfigs
from gemm_tuner.pipeline.check_stage import only_store
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.finals import Finalists, Finals
from gemm_tuner.pipeline.prepare import best_predicted
from gemm_tuner.pipeline.rounds import Rounds
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.serving_search import with_servers
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.verify_remaining import ALL, check_others
from gemm_tuner.search import Search, make_search
from gemm_tuner.source.codegen import Script
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system.processes import MOST_DEATHS

# Kernels of more than this can drive a GPU into its power limit, where screening one after the other misjudges by
# more than the best differ (docs/tuning.md): more of them come into the finals, which are interleaved.
POWER_LIMITED_US = 100.0
MORE_FINALISTS = 2
NOT_CHECKED = "not checked: the budget was over; a larger --budget checks it"
NOT_ASKED = "not_asked_for_by_the_search"
# Further finals of a size of which no finalist is right, each of the next best by screening.
MORE_FINALS = 3


@dataclass
class Tuning:
    """The measured way of a batch. ``launchers``: one a GPU. given: the servers of a results file that is timed."""

    session: Session
    states: list[SizeState]
    launchers: Sequence[Launcher]
    scripts: dict[tuple[str, str], Script] = field(default_factory=dict)
    given: tuple[serving.Server, ...] | None = None

    @property
    def plan(self) -> FinalsPlan:
        """How much the finals of this run do: less where its budget leaves little time."""
        session, sizes = self.session, len(self.states)
        whole = FinalsPlan(finalists=session.settings.finalists, rounds=session.settings.iters)
        if not session.limits.budget.bounded or session.environment.source != "measured":
            return whole
        checks_s = (1 + len(self._servers)) * session.limits.pace.check().of(sizes)
        tiring = sum(state.best_screened_us() > TIRING_CALL_US for state in self.states)
        return fitted(whole, sizes, tiring, session.limits.budget.left_s() - checks_s, session.limits.pace.start())

    def run(self) -> None:
        """From ledgers to results; every size is settled at the end."""
        open_ones = [state for state in self.states if self.session.store.settled(state.problem) is None]
        self._older.add(self.states, self.session.device)
        serving.add(self._servers, self.states)
        self._write_scripts()
        fleet, settings = self._fleet(), self.session.settings
        finals = self._finals(fleet)
        self._restore(finals)
        labels = self.session.gpus.labels
        fleet.home.update(resume.homes(self.session.store, [state.problem for state in open_ones], labels))
        with ExitStack() as stack:
            compiling = (
                stack.enter_context(self.session.compile_stage(self.scripts)) if settings.compile_stage else None
            )
            if compiling:
                compiling.restore(open_ones)
            if open_ones:
                search = make_search(settings.search, seed=settings.seed, jobs=settings.compile_workers)
                search = with_servers(search, self._servers, open_ones)
                self._rounds(search, open_ones, fleet, compiling).run()
                if compiling:
                    note_idle_workers(self.session.log, settings.compile_workers, compiling.busy_s)
                best = [(state, self._best(state)) for state in open_ones]
                finalists = [(state, self._older.added(state, names)) for state, names in best]
                finalists = [(state, serving.added(self._servers, state, names)) for state, names in finalists]
                self._settle(self._compiled(finalists, compiling), finals, compiling)
            if settings.compare == ALL:
                check_others(self.session.check_stage(self.scripts, compiling), fleet.first_alive(), self.states)
        self.session.outcomes.write()
        for state in self.states:
            state.spread_failures()
            state.cut([name for name in state.kept if not state.ended(name)], NOT_ASKED)

    def run_given(self) -> None:
        """Times and checks ledgers of given configurations: compile, finals, check. The first of a ledger is the row's
        own, which it keeps; the others are those of servers."""
        serving.add(self._servers, self.states)
        self._write_scripts()
        with self.session.compile_stage(self.scripts) as compiling:
            given = [(state, list(state.kept)) for state in self.states]
            compiling.compile_sizes(given, "compile")
            runnable = [(state, [n for n in names if not state.ended(n)]) for state, names in given]
            self._settle(runnable, self._finals(self._fleet()), compiling)

    def _write_scripts(self) -> None:
        wanted = [(state.problem, config) for state in self.states for config in state.kept.values()]
        self.scripts = self.session.write_scripts(wanted)

    @property
    def _older(self) -> BaselineConfigs:
        return BaselineConfigs(self.session.settings.older, self.session.settings.min_improvement_pct)

    def _rounds(
        self, search: Search, states: Sequence[SizeState], fleet: Fleet, compiling: CompileStage | None
    ) -> Rounds:
        one, planner = self.session, self.session.planner(self.scripts)
        return Rounds(
            search, states, planner, fleet, one.gpus, one.store, one.limits, one.log, compiling, one.settings.jobs
        )

    def _finals(self, fleet: Fleet) -> Finals:
        one = self.session
        finals = Finals(one.planner(self.scripts), fleet, one.gpus, one.store, one.limits, one.log, self.plan)
        finals.published = one.outcomes.published
        return finals

    def _fleet(self) -> Fleet:
        return Fleet(self.launchers, lambda text: self.session.log.console.print(f"[red]{text}"))

    def _restore(self, finals: Finals) -> None:
        """Enters what an earlier start of this run has found, and settles again what it had settled."""
        store = self.session.store
        settled = {state.problem: store.settled(state.problem) for state in self.states}
        for state in self.states:
            for timing in store.timings(state.problem, SCREEN):
                state.record_timing(timing, SCREEN)
            state.record_crashes(store.begun(state.problem), MOST_DEATHS)
            if settled[state.problem] is not None:
                state.rows = store.outcomes_of(state.problem)
        finals.restore(self.states, [state for state in self.states if settled[state.problem] is not None])
        for state in self.states:
            ended = settled[state.problem]
            if ended is not None:
                self._settle_again(state, finals, *ended)

    def _settle_again(self, state: SizeState, finals: Finals, name: str, reason: str) -> None:
        """Books a size that an earlier start of this run has ended."""
        store = self.session.store
        for other, status, message in store.failures(state.problem):
            state.record(other, status, message)
        verdicts = store.verdicts(state.problem, name)
        self._book(state, finals, name or None, verdicts, reason)

    def _settle(self, finalists: Finalists, finals: Finals, compiling: CompileStage | None) -> None:
        """Finals and checks; settles each size with the first of its contest that is right. Sizes of which none is
        have finals of the next best."""
        if not any(state.rows or names for state, names in finalists):
            raise EnvironmentFault("nothing was tried", hint="a larger --budget tries more")
        for repeats in range(1 + MORE_FINALS):
            finals.plan = self.plan
            finals.run(finalists)
            finals.note_noise()
            self.session.limits.interruption.check()
            again: list[tuple[SizeState, list[str]]] = []
            order: list[tuple[SizeState, list[str]]] = []
            for state, _ in finalists:
                unbeaten = self._older.unbeaten(state)
                others = [] if finals.decided(state) or unbeaten else self._next_best(state, repeats)
                names = [] if others or unbeaten else self._in_order(state, finals)
                if others:
                    again.append((state, others))
                elif names:
                    order.append((state, names))
                else:
                    self._book(state, finals, None, [], unbeaten or why_nothing_timed(state))
            self._check_served(order, finals, compiling)
            again += self._check(order, finals, compiling, repeats)
            if not again:
                return
            again = [(state, serving.added(self._servers, state, names)) for state, names in again]
            finalists = self._compiled(again, compiling)

    def _best(self, state: SizeState) -> list[str]:
        """A size's finalists: its fastest by screening. Those that the model finds fastest where a budget left no time
        to screen any."""
        own = state.own
        if self.session.limits.budget.bounded and self.session.environment.source == "measured" and not state.timed():
            return best_predicted(state, [name for name in own if state.may_run(name)], self.plan.finalists)
        return state.fastest(self._places(state), own)

    def _compiled(self, finalists: Finalists, compiling: CompileStage | None) -> Finalists:
        """The finalists less those that do not compile, or not in time: not all have been screened."""
        if compiling is None or not finalists:
            return finalists
        budget, pace = self.session.limits.budget, self.session.limits.pace
        if budget.bounded:
            self._compile_first(finalists, compiling)
        until = budget.until(pace.start().start_s + pace.check().of(len(self.states)))
        compiling.compile_sizes(finalists, "compile for finals", until)

        def may_run(state: SizeState, name: str) -> bool:
            return state.may_run(name) and (state.has_binary(name) or not budget.bounded)

        return [(state, [name for name in names if may_run(state, name)]) for state, names in finalists]

    def _compile_first(self, finalists: Finalists, compiling: CompileStage) -> None:
        """One kernel of each size that has none yet, however long that takes: without it there is nothing to time."""
        clock, busy_s = self.session.limits.budget.clock, compiling.busy_s
        firsts = [(state, names[:1]) for state, names in finalists if not any(map(state.has_binary, names))]
        begun = clock()
        compiling.compile_sizes(firsts, "compile for finals")
        if compiling.busy_s > busy_s:
            self.session.limits.pace.count_compiles(len(firsts), clock() - begun)

    def _places(self, state: SizeState) -> int:
        """How many of a size come into its finals: more where screening tells them apart badly."""
        power_limited = state.best_screened_us() > POWER_LIMITED_US
        return self.plan.finalists * (MORE_FINALISTS if power_limited else 1)

    def _in_order(self, state: SizeState, finals: Finals) -> list[str]:
        """What is to be checked of a size, best first."""
        names = list(finals.ranked(state).order[: self._places(state) + 1])
        if self.given is not None:
            return [name for name in finals.ranked(state).order if name == next(iter(state.kept))]
        return self._older.preferred(state, names, finals)

    def _check(
        self, order: Finalists, finals: Finals, compiling: CompileStage | None, repeats: int
    ) -> list[tuple[SizeState, list[str]]]:
        """Checks and settles. Returns the next finalists of the sizes of which none is right."""
        candidates = {state.problem: (state, names) for state, names in order}
        again: list[tuple[SizeState, list[str]]] = []

        def settled(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
            state, names = candidates[problem]
            # One that may still run was not checked: then others are not either.
            unverifiable = name is None and not any(map(state.may_run, names))
            others = self._next_best(state, repeats) if unverifiable else []
            if others:
                again.append((state, others))
            else:
                over = not unverifiable and self.session.limits.budget.left_s() <= 0
                reason = NOT_CHECKED if over else why_not_right(state, repeats)
                self._book(state, finals, name, verdicts, "" if name else reason)

        self.session.check_stage(self.scripts, compiling).run(finals.fleet.first_alive(), order, settled)
        return again

    def _check_served(self, order: Finalists, finals: Finals, compiling: CompileStage | None) -> None:
        """Checks the best that each server can launch, before the sizes are settled with it; unless the run's budget
        leaves time for no more than the check of the sizes' own."""

        times = [(state, finals_us(finals, state)) for state, _ in order]
        for server in self._servers:
            if not self.session.limits.budget.has_time_for(2 * self.session.limits.pace.check().of(len(order))):
                return
            wanted = serving.to_check(server, times, self.session.store.verdicts)
            self.session.check_stage(self.scripts, compiling).run(finals.fleet.first_alive(), wanted, only_store)

    @property
    def _servers(self) -> tuple[serving.Server, ...]:
        if self.given is not None:
            return self.given
        settings = self.session.settings
        return serving.servers(
            settings.serve,
            self.session.device,
            settings.older_served,
            settings.min_improvement_pct,
            settings.kernels,
        )

    def _next_best(self, state: SizeState, repeats: int) -> list[str]:
        """The next finalists of a size after so many repeats, by their screening. Those that were stopped early come
        last: what made losers of them may be wrong."""
        pace = self.session.limits.pace
        if repeats == MORE_FINALS or not self.session.limits.budget.has_time_for(
            pace.start().start_s + pace.check().of(1)
        ):
            return []
        count, own = self._places(state), state.own
        whole = state.fastest(count, own)
        return [*whole, *(name for name in state.timed() if name in own and name not in whole)][:count]

    def _book(self, state: SizeState, finals: Finals, name: str | None, verdicts: list[Verdict], reason: str) -> None:
        problem, store = state.problem, self.session.store
        store.keep_account(problem, state.rows)
        if name is None:
            store.record_outcome(problem, "", reason)
            self.session.outcomes.record(problem, None, reason, serving.judgement(self._servers, state))
            return
        device, source = self.session.device, self.launchers[0].source
        ranked = finals.ranked(state)
        sound = choose.without(ranked, state.found_wrong())
        overruled = {**state.passed_over(ranked.order, name), **finals.overruled(state, name)}
        ties = finals.rankings[problem].ties if problem in finals.rankings else frozenset()
        store.record_outcome(problem, name)
        self._older.note_chosen(state, name, self.session.log)
        chosen = choose.measured_choice(sound, name, state.kept[name], verdicts, device, source, ties)
        us, published = finals_us(finals, state), self.session.outcomes.published.get(problem)
        served = serving.served_choices(self._servers, state, us, store.verdicts, published=published)
        judgement = serving.judgement(self._servers, state)
        chosen = replace(chosen, served=served, overruled=tuple(overruled.items()))
        self.session.outcomes.record(problem, chosen, judgement=judgement)


def note_idle_workers(log: RunLog, workers: int, busy_s: float) -> None:
    """Notes the share of the search during which compile workers had nothing to do."""
    spent_s = workers * sum(log.stage_seconds.get(name, 0.0) for name in ("search", "compile", "screen"))
    if spent_s:
        log.notes["compile_pool_idle_pct"] = round(100 * max(0.0, 1 - busy_s / spent_s), 1)


def finals_us(finals: Finals, state: SizeState) -> dict[str, float]:
    """The times of a size's finals by name, microseconds: in the order of the contest, then those of servers' own
    kernels, fastest first."""
    ranked = finals.ranked(state)
    of_servers = sorted(ranked.times.keys() & (state.kept.keys() - state.own.keys()), key=lambda n: ranked.times[n].us)
    return {name: ranked.times[name].us for name in (*ranked.order, *of_servers) if name in ranked.times}


def why_not_right(state: SizeState, repeats: int = 0) -> str:
    """One line on why no finalist of a size was chosen. repeats: further finals that it had."""
    wrong = len(state.found_wrong())
    of_whom = f"of the finalists, those of {repeats} further finals among them," if repeats else "of the finalists"
    if wrong:
        return f"none {of_whom} is right: {wrong} gave wrong results; see the table of configurations"
    return f"none {of_whom} could be checked; see the table of configurations"


def why_nothing_timed(state: SizeState) -> str:
    """One line on why a size has no timing."""
    counts = {status: n for status, n in state.counts().items() if status not in ("", Status.PRUNED.value)}
    if not counts:
        return "nothing was tried; a larger --budget tries more"
    if state.given == set(state.kept):
        return f"the given configuration could not run: {'; '.join(map(state.why_not, state.kept))}"
    listed = ", ".join(f"{n} {status}" for status, n in sorted(counts.items(), key=lambda c: -c[1]))
    return f"no configuration has a time: {listed}"
