"""Runs finals processes on each GPU; the results of a size are stored as soon as it is complete."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from statistics import median

from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.decide import estimates
from gemm_tuner.decide.finals_plan import FinalsPlan
from gemm_tuner.decide.sheet import call_noise, screening_noise
from gemm_tuner.launch.plan import ANYWHERE, FINALS, SCREEN, Work
from gemm_tuner.measure import gpu_watch
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.gpu_watch import Sample
from gemm_tuner.measure.launcher_events import OnEvent
from gemm_tuner.measure.parse_run import Key, remaining
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.pipeline.finals_together import More, Process, Timed, Together, Turns, launched_by
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.store.finals_times import FinalsTimes, Found
from gemm_tuner.store.store import Store

TITLE = "finals"
TOGETHER = "finals start together"  # name of a fact of the store
# So many processes start together if the noise of most sizes is unknown, also from screening. Later ones wait until one
# of these has ended, whose noise determines their number of rounds; meanwhile the others use the GPU. Where it is
# unknown of a few, of few configurations, they are not worth the wait.
AT_ONCE = 3


@dataclass
class FinalsProcesses:
    """longest_s: duration of the longest process so far. when_last: called when the last of processes that started
    together times on each GPU. _watched: sensor samples of the processes, by title."""

    planner: Planner
    fleet: Fleet
    gpus: Gpus
    store: Store
    limits: Limits
    log: RunLog
    times: FinalsTimes
    longest_s: float = 0.0
    when_last: Callable[[], None] = lambda: None
    _watched: dict[str, list[Sample]] = field(default_factory=dict)
    _entering: threading.Lock = field(default_factory=threading.Lock)

    def has_time_for(self, seconds: float, sizes: int) -> bool:
        """Whether the budget leaves ``seconds`` in addition to the time for checking ``sizes``."""
        return self.limits.budget.has_time_for(seconds + self.limits.pace.check().of(sizes))

    @property
    def overlap(self) -> bool:
        """Whether processes may be started together; not with a budget, which is evaluated before each process."""
        return self.fleet.overlaps and not self.limits.budget.bounded

    @property
    def together(self) -> bool:
        """Whether planned processes start together, or did when the run began or when they were recorded: those that
        choose come first, and the numbers of further ones that choose are theirs alone."""
        recording = self.gpus.environment.recording
        return bool(self.store.fact(TOGETHER, self.overlap) if recording is None else recording.finals_together())

    def begin(self, when_last: Callable[[], None]) -> None:
        """Begins finals, and keeps ``together`` for a run that goes on with another budget: else processes would have
        other roles and numbers than those that are stored."""
        self.when_last = when_last
        self.store.set_fact(TOGETHER, self.together)

    def has(self, number: int, first: int) -> bool:
        """Whether this process can be run. A recording only has the processes that ran; an old recording has only one,
        which is used for the first process."""
        recorded = self._recorded()
        return recorded is None or number in recorded or (recorded == {0} and number == first)

    def _recorded(self) -> set[int] | None:
        recording = self.gpus.environment.recording
        return None if recording is None else recording.finals_processes()

    def _title(self, processes: Sequence[Process], *, alone: bool) -> str:
        first, last = processes[0].number + 1, processes[-1].number + 1
        if alone or self._recorded() == {0}:
            return TITLE
        return f"{TITLE}, process {first}" if first == last else f"{TITLE}, processes {first} to {last}"

    def run(
        self,
        processes: Sequence[Process],
        sizes: int,
        plan: FinalsPlan,
        *,
        alone: bool = False,
        more: More | None = None,
    ) -> list[Found]:
        """Times the work of the processes, which start together and take turns on the GPU, and of those that follow.
        Repeated once, if there is time, when heat or the power supply slowed a GPU down.

        sizes: number of sizes whose check must still fit into the budget. alone: no other process follows.
        """
        budget, title = self.limits.budget, self._title(processes, alone=alone)
        for attempt in ("", ", again: the GPU was throttled"):
            self._forget(processes)
            if attempt and more:
                self.times.forget(more.numbers, more.problems)
            bar = self.log.step(TITLE, launched_by(processes), f"{title}{attempt}")
            with self.gpus.held(), bar as step, gpu_watch.watching(self.gpus.sensor, self.gpus.names) as samples:
                begun, gone = budget.clock(), len(self.fleet.dead)  # not earlier: waiting for the GPU does not count
                follow, timed = self.log.followed(step), Timed(samples)
                turns = Turns(self.fleet.home.get, self.when_last)
                if not more:  # else further ones may follow
                    turns.expect(processes)
                together = Together(list(processes), turns, step.expect)
                found = self._time(together, sizes, plan, timed.heard_by(follow), more)
            samples = samples[: timed.samples]
            slowed = gpu_watch.throttled(samples)
            self._note_gpu(TITLE + attempt, samples, slowed)
            spent_s = budget.clock() - begun
            self.longest_s = max(self.longest_s, spent_s)
            if len(together.processes) > 1 and len(self.fleet.dead) > gone:
                # Some processes timed a size before it moved to another GPU and others after, so all start again there.
                if more:
                    more.were_run = False
                return self._one_by_one(processes, sizes, plan)
            if not slowed or self.limits.interruption.requested or not self.has_time_for(spent_s, sizes):
                break
        return found

    def _one_by_one(self, processes: Sequence[Process], sizes: int, plan: FinalsPlan) -> list[Found]:
        """``run`` for each of the processes, without what those before found of a size that another GPU dies under."""
        found: list[Found] = []
        for process in processes:
            before = dict(self.times.gpus)
            (last,) = self.run([process], sizes, plan)
            moved = {problem for problem, gpu in self.times.gpus.items() if gpu != before.get(problem, gpu)}
            found = [{problem: of for problem, of in one.items() if problem not in moved} for one in found]
            found.append(last)
        return found

    def _forget(self, processes: Sequence[Process]) -> None:
        for process in processes:
            for one in process.work:
                self.store.drop_process(one.problem, FINALS, process.number)

    def _time(
        self, together: Together, sizes: int, plan: FinalsPlan, on_event: OnEvent, more: More | None
    ) -> list[Found]:
        """Runs all of the processes. An error in one ends the others."""
        processes, found, planned = together.processes, together.found, len(together.processes)
        known: dict[Problem, int] = {}
        futures: list[Future[list[StageRun]]] = []

        def known_of(work: Work) -> int:
            if work.problem not in known:
                known[work.problem] = self._known_rounds(work, plan)
            return known[work.problem]

        def time_one(at: int) -> list[StageRun]:
            told: Found = {}
            if at >= AT_ONCE and 2 * sum(known_of(one) > 0 for one in processes[at].work) < len(processes[at].work):
                wait(futures[:AT_ONCE], return_when=FIRST_COMPLETED)
                ended = next(index for index, future in enumerate(futures) if future.done())
                futures[ended].result()
                told = found[ended]
                if self.limits.interruption.requested:
                    return []

            def rounds(work: Work) -> int:
                return known_of(work) or plan.rounds_at(call_noise(list(told.get(work.problem, {}).values())))

            work = [replace(one, rounds=rounds(one)) for one in processes[at].work]
            heard = together.turns.heard_by(at, on_event)
            process = replace(processes[at], work=work)
            runs = self._time_one(process, sizes, heard, found[at], process.place if at < planned else ANYWHERE)
            together.turns.end(at)
            return runs

        for work in (work for process in processes for work in process.work):
            known_of(work)  # once, not by each thread: their launchers wait for it
        threading.Thread(target=estimates.load, name="imports", daemon=True).start()
        if len(processes) == 1 and more is None:
            self.limits.learn_all(time_one(0))
            return found
        with ThreadPoolExecutor(len(processes) + plan.more) as pool:
            try:
                for at in range(len(processes)):
                    futures.append(pool.submit(time_one, at))  # those that wait for others look here
                left = set(futures)
                while left:
                    ended, left = wait(left, return_when=FIRST_COMPLETED)
                    for future in ended:
                        future.result()
                    if more and together.have_chosen(futures):
                        new = [pool.submit(time_one, at) for at in self._follow(together, more)]
                        futures, left, more = [*futures, *new], left | {*new}, None
            except BaseException:
                self.fleet.cancel()
                raise
        return found

    def _follow(self, together: Together, more: More) -> range:
        """Adds the processes that follow; returns their places."""
        first = len(together.processes)
        with self._entering:
            new = [] if self.limits.interruption.requested else more.after(together.found)
            self._forget(new)
        together.add(new)
        more.were_run = True
        return range(first, len(together.processes))

    def _known_rounds(self, work: Work, plan: FinalsPlan) -> int:
        """The number of rounds that follows from the noise of a size in its earlier processes, else in its screening,
        which does not count with a budget; 0 if neither is known."""
        noise = call_noise(self.times.by_size.get(work.problem, ()))
        if noise is not None:
            return plan.rounds_at(noise)
        screened = [] if self.limits.budget.bounded else self.store.timings(work.problem, SCREEN)
        noise = screening_noise(screened)
        best_us = min((median(one.samples_us) for one in screened if one.status == Status.OK), default=0.0)
        entries = len(work.entries) + work.vendor + bool(work.again)
        return 0 if noise is None else plan.rounds_by_screening(noise, entries, best_us)

    def _time_one(self, process: Process, sizes: int, on_event: OnEvent, into: Found, place: str) -> list[StageRun]:
        labels = self.gpus.labels

        def enter(timings: Mapping[Key, Timing]) -> None:
            gpus = {problem: labels[gpu] for problem, gpu in self.fleet.home.items()}
            number, roles = process.number, process.roles
            mine = (replace(one, process=number, role=roles[one.problem]) for one in timings.values())
            with self._entering:
                self.times.enter(mine, gpus.__getitem__, into)

        plans = self.planner.finals(process.number, self._deadline(sizes), together=self.together, place=place)
        crashes = {key: timing for key, timing in self.times.crashes.items() if key in process.keys}
        enter(crashes)
        runs = self.fleet.time(remaining(process.work, crashes), plans, on_event, enter, True)
        with self._entering:
            for run in runs:
                self.log.count_run(run, TITLE)
        return runs

    def _deadline(self, sizes: int) -> float:
        """Unix time after which no round begins; 0.0 without a budget."""
        budget, pace = self.limits.budget, self.limits.pace
        return budget.unix_time(budget.until(pace.finals_reserve_s(sizes)))

    def _note_gpu(self, title: str, samples: Sequence[Sample], slowed: bool) -> None:
        """Records the state of the GPUs over all processes with a title; throttled if any of them was."""
        self._watched.setdefault(title, []).extend(samples)
        found = gpu_watch.summary(self._watched[title])
        if found:
            notes = self.log.notes.setdefault("gpu", {})
            before = notes.get(title, {}).get("throttled", False)
            notes[title] = {**found, "throttled": slowed or before}
