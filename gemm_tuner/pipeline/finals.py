"""The finals: times finalists and the vendor library in several processes, until the ranking is clear."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from gemm_tuner.core.records import Problem, Role, Status, Timing
from gemm_tuner.decide import choose
from gemm_tuner.decide.contradicted import Contradicted
from gemm_tuner.decide.finals_plan import PROCESSES, FinalsPlan
from gemm_tuner.decide.ranking import Judge, Published, Ranking, judge_of
from gemm_tuner.decide.sheet import Sheet, sheet_of
from gemm_tuner.launch.plan import FINALS, SCREEN
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.pipeline.finals_processes import FinalsProcesses
from gemm_tuner.pipeline.finals_together import More, Process, Roles
from gemm_tuner.pipeline.finals_work import FinalsWork
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.store.finals_times import FinalsTimes, Found
from gemm_tuner.store.overruled import Overruled
from gemm_tuner.store.store import Store

NOT_PUBLISHED = "the trace of no process that publishes has it"


@dataclass
class Finals:
    """Runs the finals processes and ranks the finalists. All results are by problem.

    states:       sizes that have timings.
    next_process: number of the next process of this run.
    _planned:     number of planned processes that each size has completed.
    _more_ran:    whether additional choosing processes, if any were needed, ran together with the planned ones.
    _contradicted: sizes whose choice the publishing processes contradicted.
    """

    planner: Planner
    fleet: Fleet
    gpus: Gpus
    store: Store
    limits: Limits
    log: RunLog
    plan: FinalsPlan = field(default_factory=FinalsPlan)
    states: dict[Problem, SizeState] = field(default_factory=dict)
    sheets: dict[Problem, Sheet] = field(default_factory=dict)
    rankings: dict[Problem, Ranking] = field(default_factory=dict)
    published: dict[Problem, dict[str, Published]] = field(default_factory=dict)
    judge: Judge = field(default_factory=Judge)
    next_process: int = 0
    _first: int = 0
    _planned: dict[Problem, int] = field(default_factory=dict)
    _more_ran: bool = False
    _contradicted: dict[Problem, Contradicted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._times, self._overruled = FinalsTimes(self.store), Overruled(self.store)
        self.plan_by(self.planner)

    def plan_by(self, planner: Planner) -> None:
        """Replaces the planner, for scripts that contain more configurations."""
        self.planner = planner
        self.works = FinalsWork(planner, self._times, self.states)
        self._runner = FinalsProcesses(planner, self.fleet, self.gpus, self.store, self.limits, self.log, self._times)

    @property
    def timings(self) -> dict[Problem, list[Timing]]:
        """The valid timings, one per finalist and process."""
        return self._times.by_size

    def run(self, finalists: Named, when_last: Callable[[], None] = lambda: None) -> None:
        """Runs the finals: the planned processes with all finalists and the vendor library, and additional choosing
        processes if they are expected to decide.

        when_last: called when the last of processes that started together has its turn on the GPUs.
        """
        self._runner.begin(when_last)
        # The longest last: the GPU rests after each of them (Bench.rest), unless the process ends.
        finalists = sorted((one for one in finalists if one[1]), key=lambda one: one[0].best_screened_us())
        self.fleet.deal({state.problem: sum(state.predicted_us[n] for n in names) for state, names in finalists})
        for state, _ in finalists:
            self._times.begin(state.problem, self.gpus.labels[self.fleet.home[state.problem]])
            self.store.drop_checks(state.problem)
            self._overruled.forget(state.problem)
            for known in (self.sheets, self.rankings, self._contradicted):
                known.pop(state.problem, None)
            self.states[state.problem] = state
        self._first, self._more_ran = self.next_process, False
        self._planned = dict.fromkeys((state.problem for state, _ in finalists), 0)
        # No other run may use the GPUs between the processes.
        with self.gpus.held() if finalists else nullcontext(), self.fleet.finals_ahead():
            self._run_planned(finalists)
            self._judge()
            self._run_further(finalists)
        self._find_contradicted(finalists)
        for state, _ in finalists:
            if not self.limits.interruption.requested:
                self._times.drop_the_rest(state.problem)
            self._record(state)

    def _run_planned(self, finalists: Named) -> None:
        """Runs the planned processes of all sizes. Sizes that moved to another GPU start again there and catch up.
        Processes that are already in the store take no time, so they are used even if the budget is over."""
        most = max(self.plan.processes, PROCESSES)
        role = partial(replace(self.plan, processes=most).role, together=self._runner.together)
        while self._planned and (index := min(self._planned.values())) < most:
            batch = [(state, names) for state, names in finalists if self._planned[state.problem] == index]
            within = index < self.plan.processes and (self.next_process == self._first or self._may_go_on())
            batch = batch if within else self._stored(batch)
            if not batch:
                break
            until = self._until(index)
            problems = [state.problem for state, _ in batch]
            each = [dict.fromkeys(problems, role(one)) for one in range(index, until)]
            more = self._runner.overlap and self._runner.together and until - index == self.plan.processes > 1
            self._process(batch, each, then=self.plan.may_follow, more=more)
            for state, _ in batch:
                self._planned[state.problem] += until - index
            for problem in self._take_moved():  # what it has had since then is of its new GPU
                self._planned[problem] = len({timing.process for timing in self.timings.setdefault(problem, [])})
                self._times.set_roles(problem, role)
        self.plan = replace(self.plan, processes=max([self.plan.processes, *self._planned.values()]))

    def _until(self, index: int) -> int:
        """The end (exclusive) of the planned processes that may start together with process ``index``."""
        if index >= self.plan.processes or not self._runner.overlap:
            return index + 1
        return min([self.plan.processes, *(done for done in self._planned.values() if done > index)])

    def _take_moved(self) -> set[Problem]:
        """The sizes that moved to another GPU since the last call."""
        moved = self._times.take_moved()
        self._planned.update(dict.fromkeys(moved, 0))
        return moved

    def _run_further(self, finalists: Named) -> None:
        """Runs additional choosing processes for sizes that ``more`` of them are expected to decide, with the finalists
        that can still win, unless they ran beside the planned ones."""
        more = self.plan.may_follow
        self.works.rank(finalists, self.plan)
        if not more or self._more_ran:
            return
        undecided = self.works.undecided(finalists)
        if not self._may_go_on(more):
            undecided = self._stored(undecided, more)
        after = self.next_process + more if self._runner.together else 0  # their numbers are theirs alone
        if undecided:
            at_once = more if self._runner.overlap else 1
            for _ in range(0, more, at_once):
                self._process(undecided, [choosing(undecided)] * at_once)
            if self._take_moved():
                self._run_planned(finalists)
            self._judge()
        self.next_process = max(self.next_process, after)

    def _find_contradicted(self, finalists: Named) -> None:
        """Where the publishing processes contradict the choice, the finalist that is clearly faster in these wins, with
        the time that it had in the others (``decide.contradicted``)."""
        for state, _ in finalists:
            problem, order = state.problem, self._ranking(state).order
            better = self.judge.overruling(self.sheets[problem], order[0], state.own) if order else ""
            if better:
                self._overruled.keep(problem, order[0], better)
                self._contradicted[problem] = Contradicted(self.timings[problem], order[0], better)
                self._overrule(problem)

    def overruled(self, state: SizeState, name: str) -> dict[str, str]:
        """The finalist that the chosen one replaced because of the publishing processes, with the reason."""
        return self._overruled.by(state.problem, name)

    def _may_go_on(self, processes: int = 1) -> bool:
        """Whether the run continues and its budget leaves time for more processes."""
        seconds = processes * self._runner.longest_s
        return not self.limits.interruption.requested and self._runner.has_time_for(seconds, len(self.states))

    def _process(self, finalists: Named, each: Sequence[Roles], *, then: int = 0, more: bool = False) -> None:
        """Runs processes on each GPU, started together, without what an earlier start of this run has stored.

        each: of each process, the sizes that it has, with its role. then: number of processes that may follow, whose
        start overlaps with these. more: additional choosing processes follow as soon as it is known what they decide.
        """
        for problem in (problems := [state.problem for state, _ in finalists]):
            self.timings.setdefault(problem, [])
        processes = self._processes(finalists, each)
        after = self.next_process = self.next_process + len(each)

        def decide(found: Sequence[Found]) -> list[Process]:
            self.works.rank(finalists, self.plan, found)
            undecided = self.works.undecided(finalists)
            return self._processes(undecided, [choosing(undecided)] * self.plan.more)

        follow = More(decide, range(after, after + self.plan.more), problems) if more else None
        if processes:
            self.fleet.prepare_finals(len(processes) + then)
            sizes, alone = len(self.states), self.plan.processes == 1
            for timed in self._runner.run(processes, sizes, self.plan, alone=alone, more=follow):
                for problem, found in timed.items():
                    self.timings.setdefault(problem, []).extend(found.values())
        if follow and follow.were_run:
            self._more_ran, self.next_process = True, self.next_process + self.plan.more

    def _processes(self, finalists: Named, each: Sequence[Roles]) -> list[Process]:
        """The next processes that have something to time. each: see ``_process``."""
        return self.works.processes(finalists, each, self.next_process, lambda one: self._runner.has(one, self._first))

    def _stored(self, finalists: Named, processes: int = 1) -> Named:
        """The sizes for which the store already has the results of the next ``processes`` processes."""
        return self.works.stored(finalists, range(self.next_process, self.next_process + processes))

    def _record(self, state: SizeState) -> None:
        """Records a size's published times in its state. A finalist that failed in any process has failed; others
        without a published time are MISSING_IN_TRACE."""
        published = self.published.get(state.problem, {})
        lost = [t for t in self.timings.get(state.problem, ()) if t.name in state.kept and t.name not in published]
        for timing in lost:
            state.record(timing.name, Status.MISSING_IN_TRACE, NOT_PUBLISHED)
        for timing in lost:
            if timing.failed:
                state.record_timing(timing, FINALS)
        for name, found in published.items():
            if name in state.kept:
                state.record_finals(name, found.us, found.samples_us)

    def _ranking(self, state: SizeState) -> Ranking:
        return self.rankings.get(state.problem, Ranking(()))

    def restore(self, states: Sequence[SizeState], finished: Iterable[SizeState]) -> None:
        """Loads the finals that an earlier start of this run stored, and records those of finished sizes."""
        for state in states:
            timings = self.store.timings(state.problem, FINALS)
            if timings:
                self.timings[state.problem], self.states[state.problem] = timings, state
                chosen, better = self._overruled.of(state.problem)
                if better:
                    self._contradicted[state.problem] = Contradicted(timings, chosen, better)
        self._judge()
        for state in finished:
            self._record(state)

    def _judge(self) -> None:
        """Ranks the finalists of all sizes, with noise estimated from all sizes together."""
        self.sheets = {problem: sheet_of(timings) for problem, timings in self.timings.items()}
        self.judge = judge_of((sheet, self.states[problem].kept) for problem, sheet in self.sheets.items())
        for problem, sheet in self.sheets.items():
            own = self.states[problem].own  # a server's own kernel cannot win a size
            self.rankings[problem] = self.judge.rank_finalists(sheet, own, self.plan.most_choosing)
            self.published[problem] = self.judge.published(sheet)
            self._overrule(problem)
        self.log.passed("rank the finalists")

    def _overrule(self, problem: Problem) -> None:
        """Puts the finalist first that overruled the choice of a size, if any, and publishes times accordingly."""
        found = self._contradicted.get(problem)
        if found is not None:
            self.sheets[problem] = found.sheet
            self.rankings[problem] = found.rank(self.judge, self.states[problem].own, self.rankings[problem])
            self.published[problem] = found.published(self.judge)

    def publish_for(self, problem: Problem, row: str) -> None:
        """Publishes the times of a size as they are for a row of this finalist."""
        found = self._contradicted.get(problem)
        if found is not None:
            self._contradicted[problem] = found = replace(found, row=row)
            self.published[problem] = found.published(self.judge)

    def published_by(self, problem: Problem, name: str) -> frozenset[int] | None:
        """The numbers of the processes that give the time of a finalist; None for those whose role it is."""
        found = self._contradicted.get(problem)
        return found.processes_of(name) if found else None

    def decided(self, state: SizeState) -> bool:
        """Whether at least one finalist of a size completed the finals."""
        return bool(self._ranking(state).order)

    def ranked(self, state: SizeState) -> choose.Ranked:
        """The finalists in the order of their ranking. For a size whose finals failed: the ranking by screening,
        without configurations that are known to fail."""
        problem = state.problem
        if not self.decided(state):
            screened = self.store.timings(problem, SCREEN)
            ranked = choose.rank_screened(problem, [timing for timing in screened if state.may_run(timing.name)])
            return choose.without(ranked, state.kept.keys() - state.own.keys())
        found = self._contradicted.get(problem)
        ratios = found.ratios if found else {}
        return choose.Ranked(problem, self.rankings[problem].order, self.published[problem], ratios)

    def is_clearly_faster(self, state: SizeState, new: str, old: str, by_pct: float) -> bool:
        """Whether a finalist is faster than an older choice by more than ``by_pct`` percent, beyond noise."""
        return self.judge.clearly_faster(self.sheets[state.problem], new, old, by_pct, state.own)


def choosing(finalists: Named) -> Roles:
    """The roles of sizes in a process that chooses for all of them."""
    return dict.fromkeys((state.problem for state, _ in finalists), Role.CHOOSE)
