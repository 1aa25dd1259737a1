"""Tunes with a GPU: search rounds, finals, check; or plays a recording of that back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from gemm_tuner.consumers.server import Server
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Problem, Verdict
from gemm_tuner.launch.plan import SCREEN
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.pipeline import rivals, run_start, serving, substitutes
from gemm_tuner.pipeline.baseline_configs import BaselineConfigs
from gemm_tuner.pipeline.check_stage import CheckStage
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.finalists import MORE_FINALS, FinalistPicker, recombined
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.finish_size import SizeFinisher, finals_us, why_not_right, why_nothing_timed
from gemm_tuner.pipeline.first_kernels import FirstKernels
from gemm_tuner.pipeline.opens_ahead import OpensAhead, plans_of
from gemm_tuner.pipeline.rounds import Rounds
from gemm_tuner.pipeline.serving_space import searched_apart
from gemm_tuner.pipeline.session import Scripts, Session
from gemm_tuner.search import FEW_SIZES, load, make_search
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.system.background import begun_once
from gemm_tuner.system.processes import MOST_CRASHES
from gemm_tuner.system.terminal_table import print_line

NOT_CHECKED = "not checked: the budget was over; a larger --budget checks it"
NOT_ASKED = "not_asked_for_by_the_search"


@dataclass
class Tuning:
    """Tunes a batch with measurements.

    launchers: one for each GPU. given: the servers of a results file to time. begun: its kernels, if
    workers may have begun to compile them.
    """

    session: Session
    states: list[SizeState]
    launchers: Sequence[Launcher]
    given: tuple[Server, ...] | None = None
    begun: FirstKernels | None = None
    kernels: FirstKernels = field(init=False)
    older: BaselineConfigs = field(init=False)
    servers: tuple[Server, ...] = field(init=False)
    picker: FinalistPicker = field(init=False)
    fleet: Fleet = field(init=False)
    finals: Finals = field(init=False)
    finisher: SizeFinisher = field(init=False)

    def run(self) -> None:
        """From candidates to results; every size is finished at the end.

        In rounds, a search proposes configurations and learns from their screening what to propose next. The best of
        each size have finals; the first of these that a check finds right finishes the size.
        """
        self.older.add(self.states, self.session.device)
        scripts = self.prepare()
        states, options = self.restore(scripts), self.session.options
        with self.kernels.stage() as compiling:
            checks = self.session.check_stage(scripts, compiling)
            if states:
                self.decide(self.search(states, scripts, checks), checks)
            if options.compare == "all":
                checks.check_others(self.fleet, self.states)
            self.session.log.passed("finish the sizes")
        self.session.log.passed("end the compile workers")
        self.session.results.write()
        for state in self.states:
            state.copy_failures()
            state.cut([name for name in state.kept if not state.ended(name)], NOT_ASKED)

    def search(self, states: Sequence[SizeState], scripts: Scripts, checks: CheckStage) -> Named:
        """The finalists of these sizes, compiled. Launchers open the GPUs for what follows while nothing is timed."""
        opens, compiling = OpensAhead(self.fleet, self.session.gpus, len(states)), checks.compiling
        if checks.may_open_ahead(self.fleet) and checks.has_room(states):
            opens.plans = partial(plans_of, states, self.picker.places, self.session.planner(scripts), checks)
        rounds = self.rounds(states, scripts, compiling, opens)
        try:
            while asked := rounds.propose():
                rounds.learn(rounds.time(asked))
            if compiling:
                compiling.note_idle()
            more = self.recombine(states, scripts)
            finalists = [(state, [*names, *more.get(state.problem, ())]) for state, names in self.picker.best(states)]
            self.session.log.passed("pick the finalists")
            return self.picker.compiled(finalists, compiling)
        finally:
            opens.stop()

    def decide(self, finalists: Named, checks: CheckStage) -> None:
        """Finals, check, finish; repeated with the next best of sizes without a right finalist."""
        if not any(state.rows or names for state, names in finalists):
            raise EnvironmentFault("nothing was tried", hint="a larger --budget tries more")
        for repeats in range(1 + MORE_FINALS):
            self.finals.plan = self.picker.plan
            checks.prefetch(finalists)
            self.fleet.prepare_check()
            self.session.log.passed("start launchers")
            self.run_finals(finalists, checks)
            self.session.log.passed("end the finals")
            order, again = self.after_finals(finalists, repeats)
            self.check_served(order, checks)
            again += self.check_and_finish(order, checks, repeats)
            if not again:
                return
            finalists = self.picker.compiled(self.picker.with_others(again), checks.compiling)

    def run_finals(self, finalists: Named, checks: CheckStage) -> None:
        """The finals of these sizes. Beside the last reports, finalists are checked."""
        held = self.session.gpus.held() if any(names for _, names in finalists) else nullcontext()

        def leading(most: int) -> Named:
            leaders = self.finals.works.leading(finalists, most)
            return [(state, self.with_what_rows_name_beside(state, names)) for state, names in leaders]

        with held, checks.beside_finals(self.fleet, finalists, leading) as begin_checks:
            self.finals.run(finalists, begin_checks)
        if not checks.all_of_them:  # else little or nothing is left to check
            self.fleet.prepare_check()

    def run_given(self) -> None:
        """Times and checks given configurations: compile, finals, check. The first of a size is the row's own, which
        it keeps; the others are those of servers."""
        scripts = self.prepare()
        with self.session.compile_stage(scripts) as compiling:
            given = [(state, list(state.kept)) for state in self.states]
            compiling.compile_sizes(given, "compile")
            runnable = [(state, [n for n in names if not state.ended(n)]) for state, names in given]
            self.decide(runnable, self.session.check_stage(scripts, compiling))

    def __post_init__(self) -> None:
        session, options = self.session, self.session.options
        self.kernels = self.begun or FirstKernels(session)
        least_pct, kernels = options.min_improvement_pct, options.kernels
        self.older = BaselineConfigs.of(options.older, least_pct, self.states, session.device)
        asked = serving.servers(options.serve, session.device, options.older_served, least_pct, kernels)
        self.servers = asked if self.given is None else self.given
        self.picker = FinalistPicker(self.states, options, session.limits, self.older, self.servers)
        self.fleet = Fleet(self.launchers, lambda text: print_line(session.log.console, text, "red"))

    def prepare(self) -> Scripts:
        """Adds what servers launch to the candidates, and writes the scripts of all."""
        serving.add(self.servers, self.states)
        one, wanted = self.session, [(state.problem, config) for state in self.states for config in state.kept.values()]
        scripts = self.kernels.scripts
        scripts.update(one.write_scripts(wanted))
        shared = one.gpus, one.store, one.limits, one.log
        plan, published = self.picker.plan, one.results.published
        self.finals = Finals(one.planner(scripts), self.fleet, *shared, plan, published=published)
        by = one.device, one.environment.source
        self.finisher = SizeFinisher(*by, one.store, one.results, one.log, self.older, self.servers, self.finals)
        return scripts

    def recombine(self, states: Sequence[SizeState], scripts: Scripts) -> dict[Problem, list[str]]:
        """Adds configurations that the screening of single kernels speaks for; returns their names."""
        found = {state.problem: names for state in states if (names := recombined(state))}
        if found:
            wanted = ((state.problem, config) for state in self.states for config in state.kept.values())
            scripts.update(self.session.write_scripts(wanted))
            self.finals.plan_by(self.session.planner(scripts))
        return found

    def restore(self, scripts: Scripts) -> list[SizeState]:
        """Records what an earlier start of this run found, and finishes again what that finished. Returns the sizes
        that are still open."""
        store = self.session.store
        finished = {state.problem: store.finished(state.problem) for state in self.states}
        for state in self.states:
            for timing in store.timings(state.problem, SCREEN):
                state.record_timing(timing, SCREEN)
            state.record_crashes(store.begun(state.problem), MOST_CRASHES)
        self.recombine(self.states, scripts)
        for state in self.states:
            if finished[state.problem] is not None:
                state.rows = store.state_rows(state.problem)
        self.finals.restore(self.states, [state for state in self.states if finished[state.problem] is not None])
        for state in self.states:
            ended = finished[state.problem]
            if ended is not None:
                self.finisher.finish_again(state, *ended)
        left = [state for state in self.states if finished[state.problem] is None]
        self.session.log.passed("read the store")
        self.fleet.home.update(run_start.homes(store, [state.problem for state in left], self.session.gpus.labels))
        return left

    def rounds(
        self, states: Sequence[SizeState], scripts: Scripts, compiling: CompileStage | None, opens: OpensAhead
    ) -> Rounds:
        """The search of these sizes, with what an earlier start of this run compiled of them."""
        if compiling:
            compiling.restore(states)
        one, options = self.session, self.session.options
        search = make_search(options.search, seed=options.seed, jobs=options.compile_workers)
        search = searched_apart(search, self.servers, self.states)
        of = one.gpus, one.store, one.limits, one.log, compiling, options.jobs, self.states, opens
        imports = begun_once(partial(load, options.search), "imports", now=len(states) <= FEW_SIZES)
        return Rounds(search, states, one.planner(scripts), self.fleet, *of, imports)

    def after_finals(self, finalists: Named, repeats: int) -> tuple[Named, Named]:
        """What is to be checked, best first, and the next finalists of sizes whose finals all died. Sizes that have
        neither are finished without a configuration. Raises KeyboardInterrupt when the run is to end."""
        self.session.log.note_noise(one.noise_pct for one in self.finals.rankings.values())
        self.session.limits.interruption.check()
        order: Named = []
        again: Named = []
        for state, _ in finalists:
            unbeaten = self.older.unbeaten(state)
            others = [] if self.finals.decided(state) or unbeaten else self.picker.next_best(state, repeats)
            names = [] if others or unbeaten else self.to_check(state)
            if others:
                again.append((state, others))
            elif names:
                order.append((state, names))
            else:
                self.finisher.finish(state, None, [], unbeaten or why_nothing_timed(state))
        return order, again

    def to_check(self, state: SizeState) -> list[str]:
        """What is to be checked of a size, best first."""
        ranked = self.finals.ranked(state).order
        if self.given is not None:
            return [name for name in ranked if name == next(iter(state.kept))]
        return self.older.preferred(state, list(ranked[: self.picker.places(state) + 1]), self.finals)

    def check_and_finish(self, order: Named, checks: CheckStage, repeats: int) -> Named:
        """Finishes each size with its first finalist that is right, as soon as that is known. Returns the next
        finalists of the sizes of which none is."""
        candidates = {state.problem: (state, names) for state, names in order}
        again: Named = []

        def decided(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
            state, names = candidates[problem]
            # One that may still run was not checked: then others are not either.
            unverifiable = name is None and not any(map(state.may_run, names))
            others = self.picker.next_best(state, repeats) if unverifiable else []
            if others:
                again.append((state, others))
            else:
                over = not unverifiable and self.session.limits.budget.left_s() <= 0
                reason = NOT_CHECKED if over else why_not_right(state, repeats)
                self.finisher.finish(state, name, verdicts, "" if name else reason)

        checks.run(self.fleet, order, decided)
        return again

    def with_what_rows_name_beside(self, state: SizeState, leaders: list[str]) -> list[str]:
        """These finalists, the older configuration that they have to beat, and what the row would name beside the first
        of them."""
        names = self.older.added(state, leaders)
        if not names:
            return []
        beside = self.beside_winners([(state, names)], [self.finals.works.us_so_far(state)])
        return list(dict.fromkeys([*names, *(first for wanted in beside for _, (first, *_) in wanted)]))

    def check_served(self, order: Named, checks: CheckStage) -> None:
        """Checks what rows name beside their winners, before the sizes are finished with it; unless the run's budget
        leaves time for no more than the check of the sizes' own."""
        pace = self.session.limits.pace
        for wanted in self.beside_winners(order, [finals_us(self.finals, state) for state, _ in order]):
            if wanted and not pace.budget.has_time_for(2 * pace.check().of(len(order))):
                return
            checks.run(self.fleet, wanted)

    def beside_winners(self, order: Named, us: Sequence[Mapping[str, float]]) -> Iterator[Named]:
        """What is not checked yet of substitutes, rivals and the best that each server can launch: of each of these the
        sizes that have it, with the candidates, best first.

        order: what is to be checked of each size itself. us: the times of each size by name, best first.
        """
        verdicts = self.session.store.verdicts
        yield substitutes.to_check(order, us, verdicts)
        for key in rivals.keys(state for state, _ in order):
            yield rivals.to_check(order, us, verdicts, key)
        times = [(state, by_name) for (state, _), by_name in zip(order, us, strict=True)]
        for server in self.servers:
            yield serving.to_check(server, times, verdicts)
