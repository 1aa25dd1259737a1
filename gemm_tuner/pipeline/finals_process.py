"""Runs one process of finals on each GPU; what it finds is in the store as soon as a size is through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemm_tuner.core.records import Role, Timing
from gemm_tuner.launch.plan import FINALS, Work
from gemm_tuner.measure import gpu_watch
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.gpu_watch import Sample
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.supervise import at_each_end
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.store.finals_times import FinalsTimes, Found
from gemm_tuner.store.store import Store

TITLE = "finals"


@dataclass
class FinalsProcess:
    """longest_s: of all processes so far. _watched: what sensors read in them, by title."""

    planner: Planner
    fleet: Fleet
    gpus: Gpus
    store: Store
    limits: Limits
    log: RunLog
    times: FinalsTimes
    longest_s: float = 0.0
    _watched: dict[str, list[Sample]] = field(default_factory=dict)

    def has_time_for(self, seconds: float, sizes: int) -> bool:
        """Whether the budget leaves so many seconds beside the check of so many sizes."""
        return self.limits.budget.has_time_for(seconds + self.limits.pace.check().of(sizes))

    def run(self, work: list[Work], number: int, role: Role, sizes: int, title: str = TITLE) -> Found:
        """Times the work in process ``number``. Repeated once, if there is time, when heat or the power supply slowed a
        GPU down in it. sizes: of the run, whose check must fit in the budget afterwards."""
        labels, budget = self.gpus.labels, self.limits.budget
        for attempt in ("", ", again: the GPU was throttled"):
            found: Found = {}

            def enter(timings: Mapping[Key, Timing], into: Found = found) -> None:
                gpus = {problem: labels[gpu] for problem, gpu in self.fleet.home.items()}
                mine = (replace(timing, process=number, role=role) for timing in timings.values())
                self.times.enter(mine, gpus.__getitem__, into)

            for one in work:
                self.store.drop_process(one.problem, FINALS, number)
            total = sum(len(w.entries) + w.vendor + bool(w.again) for w in work)
            bar = self.log.step(TITLE, total, f"{title}{attempt}")
            with self.gpus.held(), bar as step, gpu_watch.watching(self.gpus.sensor, self.gpus.names) as samples:
                # Only now: waiting for the GPU does not count.
                begun, plans = budget.clock(), self.planner.finals(number, self._deadline(sizes))
                runs = self.fleet.time(work, plans, at_each_end(step.advance), enter, True)
            for run in runs:
                self.log.count_run(run)
                self.limits.learn(run)
            slowed = gpu_watch.throttled(samples)
            self._note_gpu(TITLE + attempt, samples, slowed)
            spent_s = budget.clock() - begun
            self.longest_s = max(self.longest_s, spent_s)
            if not slowed or self.limits.interruption.asked or not self.has_time_for(spent_s, sizes):
                break
        return found

    def _deadline(self, sizes: int) -> float:
        """When the last round must have begun, as Unix time; 0.0 without a budget."""
        budget, pace = self.limits.budget, self.limits.pace
        return budget.unix_time(budget.until(pace.finals_reserve_s(sizes)))

    def _note_gpu(self, title: str, samples: Sequence[Sample], slowed: bool) -> None:
        """Keeps the state of the GPUs over all processes of a title; throttled where one of them was."""
        self._watched.setdefault(title, []).extend(samples)
        found = gpu_watch.summary(self._watched[title])
        if found:
            notes = self.log.notes.setdefault("gpu", {})
            before = notes.get(title, {}).get("throttled", False)
            notes[title] = {**found, "throttled": slowed or before}
