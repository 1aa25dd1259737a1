"""Runs a spec: rules, parallel builds, one program run at a time, then finals of the best."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from gemm_tuner.core.records import Status
from gemm_tuner.kernels import attempt
from gemm_tuner.kernels.attempt import Outcome
from gemm_tuner.kernels.command_lines import Lines, lines_of
from gemm_tuner.kernels.identity import Identity
from gemm_tuner.kernels.metrics import Reading
from gemm_tuner.kernels.program_spec import PROFILE, ProgramSpec, instances
from gemm_tuner.pipeline import spec_profile, spec_search
from gemm_tuner.pipeline.spec_gpus import SpecGpus
from gemm_tuner.pipeline.spec_rows import Row, SpecRun, finalists_of
from gemm_tuner.store.spec_journal import FINALS, SCREEN, Line, SpecJournal, folder_of
from gemm_tuner.system.cores import usable_cores
from gemm_tuner.system.interruption import Interruption
from gemm_tuner.system.progress import step
from gemm_tuner.system.terminal_table import print_line

# Share of a budget for the first runs if finals follow.
SCREEN_SHARE = 0.7
FULL, GENETIC = SEARCHES = ("full", "genetic")
NOT_ASKED, NO_TIME = "the search did not ask for it", "the budget was over; a larger --budget runs it"


@dataclass(frozen=True, slots=True)
class SpecOptions:
    """tune: rank the combinations and time the best again. rounds: of these finals. fresh: ignore earlier results.

    search: one of SEARCHES. budget_s: wall time; 0 for no limit. builds_only: build without running.
    gpu_wait_s: how long to wait for GPUs that another process measures on; None: until they are free.
    """

    tune: bool
    rounds: int
    fresh: bool
    output_dir: Path
    search: str = FULL
    budget_s: float = 0.0
    builds_only: bool = False
    gpu_wait_s: float | None = None


def run(spec: ProgramSpec, options: SpecOptions, log: Console) -> SpecRun:
    """Runs all combinations that the rules keep. After Ctrl-C it returns the results so far, as ``interrupted``.

    Raises UserError for a rule that cannot be evaluated, EnvironmentFault for an unusable program or folder.
    """
    started = time.monotonic()
    rows = [Row(one, select=spec.select) for one in instances(spec)]
    for row in rows:
        if row.instance.cut is not None:
            row.outcome = Outcome(Status.PRUNED, f"rule: {row.instance.cut}")
    folder = folder_of(spec, options.output_dir)
    journal = SpecJournal(folder, fresh=options.fresh)
    try:
        result = SpecRun(spec, rows, options.rounds if options.tune else 0, folder=folder)
        with Interruption().listening() as interruption:
            stages = _Stages(result, journal, interruption, log, _deadlines(options, started), options.gpu_wait_s)
            open_rows = [row for row in rows if row.outcome is None]
            if options.builds_only:
                stages.build_all(open_rows)
            elif options.search == GENETIC:
                for wanted in spec_search.rounds(spec, open_rows):
                    stages.screen(wanted)
                    if interruption.requested or stages.cut_short:
                        break
            else:
                stages.screen(open_rows)
            finals = options.tune and options.rounds and not options.builds_only and not interruption.requested
            finalists = finalists_of(result) if finals else []
            if finalists:
                stages.finals(finalists)
            result.interrupted = interruption.requested
            if not result.interrupted and not options.builds_only:
                _account(open_rows, over=stages.cut_short)
    finally:
        journal.close()
    result.reused, result.seconds = stages.reused, time.monotonic() - started
    return result


def _deadlines(options: SpecOptions, started: float) -> tuple[float, float]:
    """The times (monotonic clock) after which no first run, and no round of finals, begins."""
    if not options.budget_s:
        return math.inf, math.inf
    share = SCREEN_SHARE if options.tune and options.rounds else 1.0
    return started + share * options.budget_s, started + options.budget_s


def _account(rows: Iterable[Row], *, over: bool) -> None:
    """Sets the reason for rows that were not run. over: the budget ended the first runs."""
    for row in rows:
        if row.outcome is None:
            row.outcome = Outcome(Status.PRUNED, NO_TIME if over else NOT_ASKED)


class _Stages:
    """Runs the stages and stores each outcome at once."""

    def __init__(
        self,
        result: SpecRun,
        journal: SpecJournal,
        interruption: Interruption,
        log: Console,
        deadlines: tuple[float, float],
        gpu_wait_s: float | None,
    ) -> None:
        self.result, self.journal, self.interruption, self.log = result, journal, interruption, log
        self._until = dict(zip((SCREEN, FINALS), deadlines, strict=True))
        self.spec, self.reused, self.cut_short = result.spec, 0, False
        self.profiler = spec_profile.tool_of(self.spec.profiler) if self.spec.metric.kind == PROFILE else None
        profiled = self.profiler is not None
        self.gpus = SpecGpus(profiled, gpu_wait_s, partial(print_line, log), lambda: interruption.requested)
        self._identity = Identity(self.spec)
        self._built: dict[tuple[str, ...], Outcome | None] = {}
        self._lines: dict[int, Lines] = {}
        self._keys: dict[int, str] = {}

    def _is_over(self, stage: str) -> bool:
        """Whether the budget of a stage is used up. Waiting for GPUs does not count."""
        return time.monotonic() - self.gpus.waited_s > self._until[stage]

    def lines(self, row: Row) -> Lines:
        at = row.instance.mesh_idx
        if at not in self._lines:
            self._lines[at] = lines_of(self.spec, row.instance, self.journal.builds)
            self._keys[at] = self._identity.key(row.instance, self._lines[at])
        return self._lines[at]

    def known(self, row: Row, stage: str, number: int) -> Outcome | None:
        self.lines(row)
        return self.journal.known(self._keys[row.instance.mesh_idx], stage, number)

    def screen(self, rows: Sequence[Row]) -> None:
        repeat = range(self.spec.repeat)
        self._build(row for row in rows if any(self.known(row, SCREEN, number) is None for number in repeat))
        attempts: dict[int, list[Outcome]] = {row.instance.mesh_idx: [] for row in rows}
        turns = [(row, number) for row in rows for number in repeat]
        with self._held(turns, SCREEN), step("specs", len(turns), self.log) as bar:
            self._run(bar.advance, turns, SCREEN, attempts)
        for row in rows:
            _set_outcome(row, attempts[row.instance.mesh_idx], self.spec.repeat)

    def finals(self, finalists: Sequence[Row]) -> None:
        """Times the finalists again in rounds, each of which begins with a different one."""
        rounds = range(self.result.rounds)
        self.result.rounds = 0
        self._build(row for row in finalists if any(self.known(row, FINALS, number) is None for number in rounds))
        attempts: dict[int, list[Outcome]] = {row.instance.mesh_idx: [] for row in finalists}
        turns = [(row, number) for number in rounds for row in finalists]
        with self._held(turns, FINALS), step("finals", len(turns), self.log) as bar:
            for number in rounds:
                first = number % len(finalists)
                order = (*finalists[first:], *finalists[:first])
                # Results of earlier starts take no time.
                known = all(self.known(row, FINALS, number) is not None for row in order)
                if self.interruption.requested or (not known and self._is_over(FINALS)):
                    break
                self._run(bar.advance, [(row, number) for row in order], FINALS, attempts)
                self.result.rounds += not self.interruption.requested
        if self.interruption.requested or not self.result.rounds:
            return  # the screening results remain
        for row in finalists:
            row.is_finalist = True
            _set_outcome(row, attempts[row.instance.mesh_idx], self.result.rounds)

    @contextmanager
    def _held(self, turns: Iterable[tuple[Row, int]], stage: str) -> Iterator[None]:
        """Holds the GPUs if any of these has to run; not after Ctrl-C, when none is run."""
        with ExitStack() as held:
            if any(self.known(row, stage, number) is None for row, number in turns):
                try:
                    held.enter_context(self.gpus.held())
                except KeyboardInterrupt:
                    if not self.interruption.requested:
                        raise
            yield

    def build_all(self, rows: Sequence[Row]) -> None:
        """Builds all rows without running them; failed builds are recorded."""
        self._build(rows)
        for row in rows:
            row.outcome = self._built.get(self.lines(row).build)

    def _build(self, rows: Iterable[Row]) -> None:
        """Builds what the rows need, in parallel; each build command once."""
        wanted = {lines.build: lines for row in rows if (lines := self.lines(row)).build}
        wanted = {build: lines for build, lines in wanted.items() if build not in self._built}
        if not wanted:
            return
        with step("builds", len(wanted), self.log) as bar, ThreadPoolExecutor(usable_cores()) as pool:
            started = {pool.submit(self._build_one, lines): build for build, lines in wanted.items()}
            for done in as_completed(started):
                self._built[started[done]] = done.result()
                bar.advance()

    def _build_one(self, lines: Lines) -> Outcome | None:
        if self.interruption.requested:
            return Outcome(Status.COMPILE_ERROR, "interrupted")  # no program is run after it
        return attempt.build(self.spec, lines)

    def _run(
        self,
        advance: Callable[[], object],
        turns: Sequence[tuple[Row, int]],
        stage: str,
        attempts: dict[int, list[Outcome]],
    ) -> None:
        """Runs the programs in sequence. A row that failed is not run again in the same stage. The first runs end with
        their share of the budget, but something always runs; a round of finals is always completed."""
        for row, number in turns:
            if self.interruption.requested:
                return
            over = stage == SCREEN and any(attempts.values()) and self._is_over(SCREEN)
            if over and self.known(row, stage, number) is None:
                self.cut_short = True
                continue
            found = attempts[row.instance.mesh_idx]
            if not found or found[-1].status is Status.OK:
                found.append(self._run_one(row, stage, number))
            advance()

    def _run_one(self, row: Row, stage: str, number: int) -> Outcome:
        known = self.known(row, stage, number)
        if known is not None:
            self.reused += 1
            return known
        lines = self.lines(row)
        if (fault := self._built.get(lines.build)) is not None:
            return fault  # not stored, because the cause may be fixed before the next start
        if self.profiler is None:
            outcome = attempt.run(self.spec, row.instance, lines)
        else:
            outcome = spec_profile.run(self.spec, row.instance, lines, self.profiler, self.journal.builds)
        if outcome.status is not Status.LAUNCH_ERROR or outcome.reason.startswith("exit"):
            self.journal.add(Line(self._keys[row.instance.mesh_idx], stage, number, outcome))
        return outcome


def _set_outcome(row: Row, attempts: Sequence[Outcome], wanted: int) -> None:
    """Sets the row's outcome: that of the run that counts, or of the first that failed; none if it is unfinished."""
    fault = next((one for one in attempts if one.status is not Status.OK), None)
    if fault is not None:
        row.outcome, row.values = fault, ()
    elif len(attempts) >= wanted:
        readings: list[Reading] = [one.reading for one in attempts if one.reading is not None]
        row.values = tuple(reading.value for reading in readings)
        row.outcome = next(one for one in attempts if one.reading is not None and one.reading.value == row.value)
