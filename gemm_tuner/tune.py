"""Tunes with a GPU: compile, screen, finals, check; or plays a recording of that back."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gemm_tuner import choose, compile_stage, progress
from gemm_tuner.codegen import Script
from gemm_tuner.errors import EnvironmentFault
from gemm_tuner.launch import OnEvent, StageRun, nobody
from gemm_tuner.launcher.plan import FINALS, SCREEN, VENDOR, Method, Plan, Work
from gemm_tuner.ledger import Ledger
from gemm_tuner.records import GemmProblem, Status, Timing, Verdict
from gemm_tuner.session import Session
from gemm_tuner.steps import check_candidates, compile_wanted, write_scripts

# L2 is emptied by reading this many times its size.
FLUSH_L2_TIMES = 2

# Configurations of one profiler start: nsys 2023.4 imported traces of 22 700 and failed at 37 600 (221 884 calls) with
# "Wrong event order has been detected".
MOST_ENTRIES_A_START = 15_000

Finalists = Sequence[tuple[Ledger, list[str]]]


class Launcher(Protocol):
    """A GPU, or a recording of one."""

    @property
    def source(self) -> str:
        """'measured' or 'replayed'."""

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = nobody) -> StageRun:
        """Times the plan's entries."""

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = nobody) -> None:
        """Checks the plan's entries."""

    def cancel(self) -> None:
        """Ends what runs, from another thread."""


@dataclass
class Tuning:
    """The measured way of a batch. ``launchers``: one a GPU."""

    session: Session
    ledgers: list[Ledger]
    launchers: Sequence[Launcher]
    scripts: dict[tuple[str, str], Script] = field(default_factory=dict)

    def run(self) -> None:
        """From ledgers to results; every size is settled at the end."""
        settings = self.session.settings
        with self.session.stage("write scripts"):
            wanted = [(ledger.problem, c) for ledger in self.ledgers for c in ledger.kept.values()]
            self.scripts = write_scripts(self.session, wanted)
        if settings.compile_stage:
            compile_wanted(self.session, wanted, self.scripts, self.ledgers, "compile")
        screened = self.screen()
        finalists = self.finalists(screened)
        finals = self.finals(finalists)
        self.check(finalists, screened, finals)

    def run_given(self) -> None:
        """Times and checks ledgers of one given configuration each: compile, finals, check."""
        wanted = [(ledger.problem, c) for ledger in self.ledgers for c in ledger.kept.values()]
        self.scripts = write_scripts(self.session, wanted)
        compile_wanted(self.session, wanted, self.scripts, self.ledgers, "compile")
        finalists = [(ledger, compile_stage.runnable(ledger)) for ledger in self.ledgers]
        self.check(finalists, {}, self.finals(finalists))

    def screen(self) -> dict[GemmProblem, list[Timing]]:
        """A few launches of every configuration; clear losers get fewer."""
        shares = share_out(self.ledgers, len(self.launchers))
        work = [[self._work(ledger, self._in_order(ledger)) for ledger in share] for share in shares]
        total = sum(len(w.entries) for share in work for w in share)
        return self._time(SCREEN, work, self.session.settings.screen_calls, total)

    def _in_order(self, ledger: Ledger) -> list[str]:
        """Predicted best first, so that losers are known as such early."""
        return sorted(compile_stage.runnable(ledger), key=lambda name: ledger.predicted_us[name])

    def finalists(self, screened: dict[GemmProblem, list[Timing]]) -> list[tuple[Ledger, list[str]]]:
        """The fastest of each size by screening."""
        count = self.session.settings.finalists
        ranked = [(ledger, choose.rank(ledger.problem, screened.get(ledger.problem, []))) for ledger in self.ledgers]
        return [(ledger, [t.name for t in r.timings[:count]]) for ledger, r in ranked]

    def finals(self, finalists: Finalists) -> dict[GemmProblem, list[Timing]]:
        """The finalists of each size and the vendor library, interleaved."""
        names = {ledger.problem: some for ledger, some in finalists if some}
        shares = share_out([ledger for ledger, some in finalists if some], len(self.launchers))
        work = [[self._work(ledger, names[ledger.problem], vendor=True) for ledger in share] for share in shares]
        total = sum(len(w.entries) + 1 for share in work for w in share)
        return self._time(FINALS, work, self.session.settings.iters, total)

    def check(
        self,
        finalists: Finalists,
        screened: dict[GemmProblem, list[Timing]],
        finals: dict[GemmProblem, list[Timing]],
    ) -> None:
        """Checks each size's best first and settles it with the first that is right."""
        ranking: dict[GemmProblem, choose.Ranked] = {}
        order: list[tuple[Ledger, list[str]]] = []
        for ledger, _ in finalists:
            # A size whose finals died keeps the times of its screening.
            ranked = choose.rank(ledger.problem, finals.get(ledger.problem, []))
            if not ranked.timings:
                ranked = choose.rank(ledger.problem, screened.get(ledger.problem, []))
            ranking[ledger.problem] = ranked
            names = [t.name for t in ranked.timings[: self.session.settings.finalists]]
            if names:
                order.append((ledger, names))
            else:
                self.session.settle(ledger.problem, None, why_nothing_timed(ledger))

        def settled(problem: GemmProblem, name: str | None, verdicts: list[Verdict]) -> None:
            ledger = next(one for one, _ in order if one.problem == problem)
            if name is None:
                self.session.settle(problem, None, why_not_right(ledger))
            else:
                device, source = self.session.setting.device, self.launchers[0].source
                sound = choose.without(ranking[problem], ledger.named(Status.WRONG))
                chosen = choose.measured_choice(sound, name, ledger.kept[name], verdicts, device, source)
                self.session.settle(problem, chosen)

        check_candidates(self.session, self.launchers[0], self.scripts, order, settled)

    def _work(self, ledger: Ledger, names: Iterable[str], *, vendor: bool = False) -> Work:
        entries = tuple((self._script_index(ledger, name), name) for name in names)
        return Work(ledger.problem, entries, vendor)

    def _script_index(self, ledger: Ledger, name: str) -> int:
        return list(self.scripts).index((ledger.kept[name].family, ledger.problem.class_key))

    def _time(self, stage: str, shares: list[list[Work]], calls: int, total: int) -> dict[GemmProblem, list[Timing]]:
        """Times one share on each GPU, all at once, and books the timings."""
        runs: list[StageRun] = []
        method = timing_method(self.session, calls)
        paths = tuple(str(script.path) for script in self.scripts.values())
        lock = threading.Lock()
        with self.session.stage(stage), progress.step(stage, total, self.session.console) as step:

            def heard(event: dict[str, object]) -> None:
                if event["event"] in ("end", "fail"):
                    with lock:
                        step.advance()

            jobs: list[tuple[Launcher, list[Plan], list[Path]]] = []
            for launcher, share in zip(self.launchers, shares, strict=True):
                parts = deal(share, max(self.session.settings.jobs if stage == SCREEN else 1, starts_for(share)))
                plans = [Plan(stage, paths, tuple(part), method) for part in parts if part]
                folders = [self.session.folder.stage(stage) for _ in plans]
                jobs.append((launcher, plans, folders))
            with ThreadPoolExecutor(max_workers=max(1, len(jobs))) as pool:
                try:
                    for done in as_completed([pool.submit(run_plans, *job, heard) for job in jobs]):
                        runs += done.result()
                except BaseException:  # Ctrl-C, or one GPU's fault: the others must not run on
                    for launcher in self.launchers:
                        launcher.cancel()
                    raise
        self._book(stage, runs)
        timings: dict[GemmProblem, list[Timing]] = {}
        for run in runs:
            for (problem, _), timing in run.timings.items():
                timings.setdefault(problem, []).append(timing)
        return timings

    def _book(self, stage: str, runs: list[StageRun]) -> None:
        by_problem = {ledger.problem: ledger for ledger in self.ledgers}
        for run in runs:
            self.session.count("profiler starts", run.starts)
            self.session.count("compiled under the profiler", run.compiled)
            for (problem, name), timing in run.timings.items():
                ledger = by_problem[problem]
                if name != VENDOR:
                    ledger.record_timing(timing, stage)


def run_plans(launcher: Launcher, plans: list[Plan], folders: list[Path], heard: OnEvent) -> list[StageRun]:
    """One GPU's plans, one after another."""
    return [launcher.timings(plan, folder, heard) for plan, folder in zip(plans, folders, strict=True)]


def timing_method(session: Session, calls: int) -> Method:
    """How this run times: L2 emptied before each call, or operands rotated where their copies exceed L2."""
    settings = session.settings
    return Method(
        timed_calls=calls,
        flush_bytes=FLUSH_L2_TIMES * session.setting.device.l2_bytes,
        rotating_bytes=settings.rotating_mib * 2**20,
        init_type=settings.init_type,
        seed=settings.seed,
    )


def share_out(ledgers: Sequence[Ledger], count: int) -> list[list[Ledger]]:
    """Deals sizes over GPUs, the dearest first, each to the GPU with the least to do; a size stays whole."""
    shares: list[list[Ledger]] = [[] for _ in range(count)]
    loads = [0.0] * count

    def cost(ledger: Ledger) -> float:
        return sum(ledger.predicted_us.values())

    for ledger in sorted(ledgers, key=cost, reverse=True):
        least = loads.index(min(loads))
        shares[least].append(ledger)
        loads[least] += cost(ledger)
    return shares


def starts_for(share: list[Work]) -> int:
    """Profiler starts that a share needs for none to hold more than MOST_ENTRIES_A_START, whole sizes aside."""
    return max(1, -(-sum(len(work.entries) for work in share) // MOST_ENTRIES_A_START))


def deal(work: list[Work], count: int) -> list[list[Work]]:
    """Splits a share into at most ``count`` profiler starts, the largest sizes first, each to the least loaded;
    within a start the sizes stay in their order."""
    starts: list[list[int]] = [[] for _ in range(min(count, max(1, len(work))))]
    loads = [0] * len(starts)
    for index in sorted(range(len(work)), key=lambda index: len(work[index].entries), reverse=True):
        least = loads.index(min(loads))
        starts[least].append(index)
        loads[least] += len(work[index].entries)
    return [[work[index] for index in sorted(indices)] for indices in starts]


def why_not_right(ledger: Ledger) -> str:
    """One line on why no finalist of a size was chosen."""
    wrong = len(ledger.named(Status.WRONG))
    if wrong:
        return f"none of the finalists is right: {wrong} gave wrong results; see the table of configurations"
    return "none of the finalists could be checked; see the table of configurations"


def why_nothing_timed(ledger: Ledger) -> str:
    """One line on why a size has no timing."""
    counts = {status: n for status, n in ledger.counts().items() if status != Status.PRUNED.value}
    if not counts:
        raise EnvironmentFault(f"{ledger.problem.key}: nothing was tried")
    listed = ", ".join(f"{n} {status}" for status, n in sorted(counts.items(), key=lambda c: -c[1]))
    return f"no configuration has a time: {listed}"
