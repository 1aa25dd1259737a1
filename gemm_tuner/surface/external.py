"""Tunes importable functions in child processes, with finals under an external profiler.

If a process crashes or hangs, the configuration that was running fails, and a new process screens the others.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from gemm_tuner import profilers
from gemm_tuner.core.errors import CannotWrite, EnvironmentFault
from gemm_tuner.core.records import Status
from gemm_tuner.measure import probe
from gemm_tuner.measure.device import lock_name_here
from gemm_tuner.profilers import Profiler, TraceError
from gemm_tuner.surface.finals_samples import by_name, samples_of_trace
from gemm_tuner.surface.folder import SessionFolder
from gemm_tuner.surface.gpu import require_shared
from gemm_tuner.surface.job import (
    FINALS,
    JOB,
    JOURNAL,
    SCREEN,
    Begun,
    Event,
    Finished,
    Job,
    Told,
    Turns,
    named,
    named_check,
    read_events,
    written,
)
from gemm_tuner.surface.ranking import rank_processes
from gemm_tuner.surface.records import Call, Check, Config, Effort, Row, Tuned, plain_config
from gemm_tuner.system import gpu_lock
from gemm_tuner.system.installation import IMPORT_ROOT
from gemm_tuner.system.processes import Ended, run_watched

# Time limits for importing the user's modules and torch, and for ending and converting a recording.
START_LIMIT_S = 180.0
REPORT_LIMIT_S = 900.0
# Default time limit of the build and all calls of one configuration.
LIMIT_S = 60.0
MAX_PROCESSES = 25
SCRIPT = """\
import sys
from pathlib import Path
from gemm_tuner.surface.child import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
"""


def tune_external(
    configs: Mapping[str, Config],
    build: Callable[[Config], Any],
    *,
    name: str,
    check: Check | None,
    baselines: Mapping[str, Callable[[], Any]],
    effort: Effort,
    profiler: str,
    output_dir: Path | str | None,
    seed: int,
) -> Tuned:
    """As ``tune_callables``. configs: by name. Raises UserError for functions that another process cannot import."""
    job = Job(
        stage=SCREEN,
        build=named(build, "build"),
        configs={name: written(config, f"configuration {name}") for name, config in configs.items()},
        check=named_check(check or Check()),
        baselines={name: named(one, f"baseline {name}") for name, one in baselines.items()},
        effort=effort,
        seed=seed,
    )
    started = time.monotonic()
    if profiler != "clock":
        require_shared("profiler=", "leave it out: the functions are then timed in this process")
    gpus = [] if profiler == "clock" else probe.gpus()
    backend = "cpu" if not gpus else "cuda" if gpus[0]["arch"].startswith("sm_") else "hip"
    tool = profilers.select(profiler, backend)
    folder = SessionFolder.make(output_dir, name)
    with ExitStack() as stack:
        raw = folder.path / "raw" if folder.path else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(gpu_lock.held([lock_name_here(gpus[0])] if gpus else []))
        spare = profilers.others(tool, backend) if profiler == profilers.AUTO else []
        run = _Run(job, dict(configs), tool, raw, folder, spare)
        run.screen()
        screened = time.monotonic()
        run.finals()
        stages = {"screen": screened - started, "finals": time.monotonic() - screened}
    best = run.order[0] if run.order else ""
    made = build(dict(configs[best])) if best else None
    return run.tuned(name, made.product if isinstance(made, Call) else made, time.monotonic() - started, stages)


@dataclass
class _Run:
    """The state of a run. spare: profilers to use, in order, if ``profiler`` does not work. rows: by name. order, ties:
    of the finals."""

    job: Job
    configs: dict[str, Config]
    profiler: Profiler
    raw: Path
    folder: SessionFolder
    spare: list[Profiler] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    ties: frozenset[str] = frozenset()
    starts: int = 0
    noise_pct: float | None = None
    fault: str = ""

    def record(self, row: Row) -> None:
        if self.rows.get(row.name) != row:
            self.folder.log(row)
        self.rows[row.name] = row

    def screen(self) -> None:
        """Runs processes until each configuration has a row. Raises EnvironmentFault if they make no progress."""
        check = self.job.check
        alone = check.skip or check.manual is not None or check.reference is not None
        ended: set[str] = set()
        for _ in range(MAX_PROCESSES):
            done = set(self.rows) if alone else ended
            left = {name: config for name, config in self.job.configs.items() if name not in done}
            if not left:
                return
            events, end = self._process(msgspec.structs.replace(self.job, configs=left), under=None)
            begun = [event.name for event in events if isinstance(event, Begun)]
            rows = [event.row for event in events if isinstance(event, Told)]
            for row in rows:
                self.record(replace(row, config=self.configs[row.name]))
            if Finished() in events:
                return
            if not begun:
                raise _no_start(end)
            at = begun[-1]
            ended.add(at)
            if at not in {row.name for row in rows}:
                status = Status.TIMEOUT if end.stalled else Status.CRASHED
                self.record(Row(self.configs[at], at, status, f"{end.how()}: {end.log_tail()}"))
        for name in self.job.configs.keys() - self.rows.keys():
            reason = f"not run: {MAX_PROCESSES} processes died before its turn"
            self.record(Row(self.configs[name], name, Status.CRASHED, reason))

    def finals(self) -> None:
        """Times the best few and the baselines in several processes, and ranks them."""
        timed = sorted((row.us, row.name) for row in self.rows.values() if row.status is Status.OK and row.us)
        self.order = tuple(name for _, name in timed)
        effort = self.job.effort
        names = [name for us, name in timed if us <= effort.within * timed[0][0]][: effort.finalists]
        if not names:
            return
        duplicate_of = names[0] if len(names) + len(self.job.baselines) > 1 else ""
        finalists = {name: self.job.configs[name] for name in names}
        job = msgspec.structs.replace(self.job, stage=FINALS, configs=finalists, duplicate_of=duplicate_of)
        found = self._found(job, effort.processes)
        while not found and self.spare:
            tool, self.profiler = self.profiler, self.spare.pop(0)
            name = self.profiler.name
            self._warn(f"finals go on under {name}, since they do not work under {tool.name}: {self.fault}")
            found = self._found(job, effort.processes)
        if not found:
            self._warn(f"no finals, since they do not work under {self.profiler.name}: {self.fault}")
            return  # the screening results remain
        configs = {name: plain_config(self.configs[name]) for name in names if all(name in one for one in found)}
        ranked = rank_processes(self.profiler.name, found, configs, duplicate_of)
        self.order, self.ties, self.noise_pct = ranked.order, ranked.ties, ranked.noise_pct
        for name, published in ranked.times.items():
            row = self.rows.get(name) or Row({}, name, Status.OK, baseline=True)
            row = replace(row, us=published.us, samples_us=published.samples_us, method=self.profiler.name)
            self.record(replace(row, finalist=name in configs))

    def _found(self, job: Job, processes: int) -> list[dict[str, tuple[float, ...]]]:
        """The times of the finals processes that did not fail. After a first one that fails under a profiler none is
        started if another profiler is left."""
        found = []
        for number in range(processes):
            samples = self._samples(msgspec.structs.replace(job, process=number))
            if samples:
                found.append(samples)
            elif not found and self.spare:
                break
        return found

    def _warn(self, what: str) -> None:
        self.folder.say(what)
        warnings.warn(what, stacklevel=2)

    def _failed(self, number: int, why: str) -> dict[str, tuple[float, ...]]:
        self.fault = why
        self.folder.say(f"finals, process {number}: {why}")
        return {}

    def _samples(self, job: Job) -> dict[str, tuple[float, ...]]:
        """The times of one finals process, by name; empty if it failed."""
        tool = self.profiler
        how = {"host": tool.uses_clock, "scopes": tool.uses_scopes, "capture": tool.uses_capture_range}
        job = msgspec.structs.replace(job, **how)
        try:
            events, end = self._process(job, under=tool)
        except CannotWrite:
            raise
        except EnvironmentFault as error:
            return self._failed(job.process, error.one_line())
        turns = next((event for event in events if isinstance(event, Turns)), None)
        if turns is None:
            begun = [event.name for event in events if isinstance(event, Begun)]
            where = begun[-1] if begun and begun[-1] else "a round"
            return self._failed(job.process, f"{where} ended it, {end.how()}: {end.log_tail()}")
        if turns.samples_us:
            return by_name(turns.names, turns.samples_us)
        try:
            return samples_of_trace(tool, end.log_path.parent, turns.names)
        except TraceError as error:
            return self._failed(job.process, error.one_line())

    def _process(self, job: Job, under: Profiler | None) -> tuple[list[Event], Ended]:
        """Runs one process; returns (its events, how it ended). Raises EnvironmentFault if a profiler's output cannot
        be converted."""
        where = self.raw / f"{self.starts:02d}-{job.stage}"
        where.mkdir(parents=True)
        self.starts += 1
        (where / JOB).write_bytes(msgspec.json.encode(job))
        (where / "child.py").write_text(SCRIPT, "utf-8")
        argv = [sys.executable, str(where / "child.py"), str(where)]
        paths = [str(IMPORT_ROOT), *(one or os.getcwd() for one in sys.path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
        environment |= under.environment() if under else {}
        journal = where / JOURNAL

        def limit_s() -> float:
            events = list(read_events(journal))
            if not events or isinstance(events[-1], (Turns, Finished)):
                return REPORT_LIMIT_S if events else START_LIMIT_S
            calls = 1 + job.effort.warmup + job.effort.screen_calls  # and the build
            return calls * job.effort.timeout_s or LIMIT_S

        def beat() -> object:
            return journal.stat().st_size if journal.exists() else 0

        command = under.command(argv, where) if under else argv
        ended = run_watched(command, environment, where / "child.log", heartbeat=beat, stall_limit_s=limit_s)
        events = list(read_events(journal))
        timed = any(isinstance(event, Turns) for event in events)
        done = None
        for export in under.export_commands(where) if under and timed else []:
            log = where / "export.log"
            done = run_watched(export, environment, log, heartbeat=lambda: None, stall_limit_s=REPORT_LIMIT_S)
            if done.exit_status == 0:
                break
        if done is not None and done.exit_status != 0:
            raise EnvironmentFault(f"{self.profiler.name} failed: {done.log_tail()}", where=str(where))
        return events, ended

    def tuned(self, name: str, kernel: Any, seconds: float, stages: Mapping[str, float]) -> Tuned:
        """The result. kernel: the best configuration, built in this process."""
        ranked = [self.rows[one] for one in self.order]
        others = [row for row in self.rows.values() if row.name not in self.order]
        tuned = Tuned(
            name=name,
            rows=(*ranked, *others),
            best=ranked[0] if ranked else None,
            kernel=kernel,
            ties=self.ties,
            clock=self.profiler.name,
            seconds=seconds,
            method=self.profiler.name,
            folder=self.folder.path,
            stage_seconds=stages,
            noise_pct=self.noise_pct,
        )
        self.folder.write(tuned, self.job.seed)
        return tuned


def _no_start(end: Ended) -> EnvironmentFault:
    return EnvironmentFault(f"the process that times ended at its start, {end.how()}: {end.log_tail()}")
