"""The finals of a batch: the best of every size and the vendor library, interleaved until they are told apart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from gemm_tuner import choose, contest, progress
from gemm_tuner.codegen import Script
from gemm_tuner.contest import Contest
from gemm_tuner.fleet import Fleet
from gemm_tuner.gpu_watch import GpuWatch
from gemm_tuner.launcher.plan import FINALS, SCREEN, Work
from gemm_tuner.ledger import Ledger
from gemm_tuner.outcomes import Key
from gemm_tuner.plans import Planner
from gemm_tuner.records import GemmProblem, Timing
from gemm_tuner.session import Session

# A second block, of this many times the rounds of the first, runs for what the first left undecided.
MORE_ROUNDS = 2

Finalists = Sequence[tuple[Ledger, list[str]]]


@dataclass
class Finals:
    """Times and judges. ``timings`` and ``contests`` hold the outcome by problem."""

    session: Session
    scripts: dict[tuple[str, str], Script]
    fleet: Fleet
    timings: dict[GemmProblem, list[Timing]] = field(default_factory=dict)
    contests: dict[GemmProblem, Contest] = field(default_factory=dict)

    def run(self, finalists: Finalists) -> None:
        """All finalists of each size and the vendor library; then more rounds of those that are undecided."""
        planner = Planner(self.session, self.scripts)
        finalists = [(ledger, names) for ledger, names in finalists if names]
        self.fleet.deal({ledger.problem: sum(ledger.predicted_us[n] for n in names) for ledger, names in finalists})
        for ledger, _ in finalists:
            # Finals are measured together: what a killed run or earlier finalists left is no part of these.
            self.session.store.drop_finals(ledger.problem, FINALS)
            self.timings.pop(ledger.problem, None)
            self.contests.pop(ledger.problem, None)
        work = [replace(planner.work(ledger, names), vendor=True, again=names[0]) for ledger, names in finalists]
        begun = time.monotonic()
        self._time(planner, work, finalists, "finals")
        more_s = MORE_ROUNDS * (time.monotonic() - begun)
        undecided = [
            (ledger, list(self.contests[ledger.problem].undecided))
            for ledger, _ in finalists
            if self.contests[ledger.problem].undecided
        ]
        again = self.session.setting.source == "measured" and not self.session.interruption.asked
        if undecided and again and self._has_time_for(more_s):
            rounds = MORE_ROUNDS * self.session.settings.iters
            more = [replace(planner.work(ledger, names), vendor=True, rounds=rounds) for ledger, names in undecided]
            self._time(planner, more, undecided, "finals of the undecided")

    def _has_time_for(self, seconds: float) -> bool:
        """Whether the run's budget, if it has one, leaves that much."""
        budget_s = self.session.settings.budget_s
        return not budget_s or time.monotonic() + seconds <= self.session.started + budget_s

    def _time(self, planner: Planner, work: list[Work], finalists: Finalists, title: str) -> None:
        found = self._block(planner, work, title)
        self.session.store.add_timings(found.values(), FINALS)
        by_problem: dict[GemmProblem, list[Timing]] = {}
        for (problem, _), timing in found.items():
            by_problem.setdefault(problem, []).append(timing)
        for ledger, _ in finalists:
            self.judge(ledger, [*self.timings.get(ledger.problem, []), *by_problem.get(ledger.problem, [])])

    def judge(self, ledger: Ledger, timings: list[Timing]) -> None:
        """Enters a size's timings, of one block or several, and orders its contenders."""
        timings = contest.joined(timings)
        for timing in timings:
            if timing.name in ledger.kept:
                ledger.record_timing(timing, FINALS)
        self.timings[ledger.problem] = timings
        self.contests[ledger.problem] = contest.hold(timings, ledger.kept)

    def note_noise(self) -> None:
        """Keeps the median and the most of what kernels differed from themselves, over sizes."""
        noise = [one.noise_pct for one in self.contests.values() if one.noise_pct is not None]
        if noise:
            self.session.notes["noise_pct"] = (round(median(noise), 3), round(max(noise), 3))

    def decided(self, ledger: Ledger) -> bool:
        """Whether a size has finals that somebody came through."""
        return ledger.problem in self.contests and bool(self.contests[ledger.problem].order)

    def ranked(self, ledger: Ledger) -> choose.Ranked:
        """The contenders in the order of the contest. A size whose finals died keeps the times of its screening, less
        those of what is known to fail by now."""
        timings = self.timings.get(ledger.problem, [])
        if not self.decided(ledger):
            screened = self.session.store.timings(ledger.problem, SCREEN)
            return choose.rank(ledger.problem, [timing for timing in screened if ledger.may_run(timing.name)])
        by_name = {t.name: t for t in timings}
        order = tuple(by_name[name] for name in self.contests[ledger.problem].order)
        return choose.Ranked(ledger.problem, order, contest.vendor_of(timings))

    def _block(self, planner: Planner, work: list[Work], title: str) -> dict[Key, Timing]:
        """One block; repeated once, if there is time, when heat or the power supply slowed a GPU down in it."""
        session = self.session
        for attempt in ("", ", again: the GPU was throttled"):
            begun = time.monotonic()
            found: dict[Key, Timing] = {}
            total = sum(len(w.entries) + w.vendor + bool(w.again) for w in work)
            bar = progress.step(title + attempt, total, session.console)
            with session.gpus_held(), session.stage("finals"), bar as step, GpuWatch(session.watched_gpus()) as watch:
                runs = self.fleet.time(work, planner.finals(), step.on_event, found.update)
            for run in runs:
                session.count_run(run)
            session.note_gpu(title + attempt, watch)
            spent_s = time.monotonic() - begun
            if not watch.throttled() or session.interruption.asked or not self._has_time_for(spent_s):
                break
        return found
