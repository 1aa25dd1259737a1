"""One run's working state: its folder, store, console, stage times, and the results written so far."""

from __future__ import annotations

import datetime
import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from gemm_tuner import __version__
from gemm_tuner.core.records import Choice, Problem
from gemm_tuner.decide.ranking import Published
from gemm_tuner.measure import gpu_users
from gemm_tuner.measure.budget import Budget, Costs, Pace
from gemm_tuner.measure.device import driver_name, lock_name
from gemm_tuner.measure.gpu_watch import Sensor
from gemm_tuner.measure.launcher_process import visible_gpu
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.settings import Settings
from gemm_tuner.store import results
from gemm_tuner.store.results_file import Judgement, ResultsFile
from gemm_tuner.store.run_folder import RunFolder
from gemm_tuner.store.store import Store
from gemm_tuner.system import gpu_lock
from gemm_tuner.system.interruption import Interruption

# The stage in which another process holds the GPU.
WAITING = "wait for the GPU"


@dataclass
class Session:
    """console: progress and messages, standard error. out: results, standard output."""

    settings: Settings
    environment: Environment
    folder: RunFolder
    store: Store
    interruption: Interruption
    console: Console
    out: Console
    sensor: Sensor | None = None
    profiler_name: str = ""
    profiler_version: str = ""
    choices: dict[Problem, Choice] = field(default_factory=dict)
    failures: dict[Problem, str] = field(default_factory=dict)
    published: dict[Problem, dict[str, Published]] = field(default_factory=dict)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    users_named: bool = False
    _holds_gpus: bool = field(default=False, init=False)
    started: float = field(default_factory=time.monotonic)
    budget: Budget = field(default_factory=Budget)
    costs: Costs = field(default_factory=Costs)
    started_at: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.timezone.utc))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the block's wall time to the stage's."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.stage_seconds[name] = self.stage_seconds.get(name, 0.0) + time.monotonic() - begun

    def count(self, fact: str, number: int) -> None:
        self.facts[fact] = self.facts.get(fact, 0) + number

    def count_run(self, run: StageRun) -> None:
        """Counts what one launcher did, and remembers what a start takes."""
        if run.starts == 1:
            self.pace.count_start(sum(len(timing.samples_us) for timing in run.timings.values()), run.seconds)
        self.count("profiler starts", run.starts)
        self.count("compiled under the profiler", run.compiled)

    @property
    def pace(self) -> Pace:
        """What the run's budget leaves time for."""
        device, measured = self.environment.device.name, self.environment.source == "measured"
        return Pace(self.budget, self.costs, self.profiler_name, f"{self.profiler_version}, {device}", measured)

    def note_compiling(self, busy_s: float) -> None:
        """Keeps the share of the search during which compile workers had nothing to do."""
        stages = ("search", "compile", "screen")
        spent = self.settings.compile_workers * sum(self.stage_seconds.get(name, 0.0) for name in stages)
        if spent:
            self.notes["compile_pool_idle_pct"] = round(100 * max(0.0, 1 - busy_s / spent), 1)

    def gpu_names(self) -> list[str]:
        """The GPUs by UUID, or as the driver numbers them where none is known."""
        backend = self.environment.device.target.backend
        gpus = [
            (self.environment.machine.gpu(gpu), visible_gpu(backend, gpu, os.environ)) for gpu in self.environment.gpus
        ]
        return [driver_name(row, visible) for row, visible in gpus]

    def watched_gpus(self) -> tuple[Sensor | None, list[str]]:
        """What GpuWatch needs."""
        return self.sensor, self.gpu_names()

    @contextmanager
    def gpus_held(self) -> Iterator[None]:
        """Holds the locks of the run's GPUs while the block times or checks on them; of a recording there are none.
        Blocks may be nested: the outermost one takes and releases the locks.

        The first time, other processes on the GPUs are named. Raises EnvironmentFault when they stay in use for
        longer than the settings say.
        """
        if self.environment.source != "measured" or self._holds_gpus:
            yield
            return
        begun, waits = time.monotonic(), False

        def say(text: str) -> None:
            nonlocal waits
            waits = True
            self.say(text)

        def stop() -> bool:
            return self.interruption.asked

        locks = [lock_name(self.environment.machine.gpu(gpu), name) for gpu, name in
                 zip(self.environment.gpus, self.gpu_names(), strict=True)]  # fmt: skip
        with gpu_lock.held(locks, self.settings.gpu_wait_s, say, stop=stop):
            if waits:
                self.budget.waited_s += time.monotonic() - begun
                self.stage_seconds[WAITING] = self.stage_seconds.get(WAITING, 0.0) + time.monotonic() - begun
            if not self.users_named:
                self.users_named = True
                found = gpu_users.others(self.environment.device.target.backend, self.gpu_names())
                if found:
                    self.say(gpu_users.sentence(found))
            self._holds_gpus = True
            try:
                yield
            finally:
                self._holds_gpus = False

    def say(self, text: str) -> None:
        """One line of progress."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    @property
    def results_path(self) -> Path:
        return self.folder.results_path(self.settings.results_file)

    def header(self) -> results.Header:
        machine = self.environment.machine
        return results.Header(
            tool_version=__version__,
            date=self.started_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            device=self.environment.device.name,
            arch=self.environment.device.target.arch,
            num_sms=self.environment.device.num_sms,
            driver=machine.driver,
            triton=machine.versions.get("triton", ""),
            torch=machine.versions.get("torch", ""),
            python=machine.versions.get("python", ""),
            profiler=self.profiler_name,
            profiler_version=self.profiler_version,
            source=self.environment.source,
            run=results.run_reference(self.results_path, self.folder.root),
            **self.how(),
        )

    def how(self) -> dict[str, Any]:
        """How it was timed: those of the recording when it is played back, nothing when it was predicted."""
        if self.environment.recording is not None:
            return self.environment.recording.how
        settings = self.settings
        if self.environment.source == "predicted":
            return {"init_type": "", "seed": settings.seed, "l2": ""}
        l2 = "rotating" if settings.rotating_mib else "flushed"
        return {"init_type": settings.init_type, "seed": settings.seed, "l2": l2}

    @functools.cached_property
    def results_file(self) -> ResultsFile:
        """The results file, with the rows that it held when this process began."""
        return ResultsFile(self.results_path, [entry.problem for entry in self.settings.entries])

    def record_outcome(
        self, problem: Problem, choice: Choice | None, reason: str = "", judgement: Judgement | None = None
    ) -> None:
        """Books a size's outcome, which the store has already; the results file follows within seconds."""
        if choice is not None:
            self.choices[problem] = choice
        else:
            self.failures[problem] = reason
        self.results_file.record_outcome(problem, choice, reason, judgement)
        self.results_file.write_when_due(self.header)

    def write_results(self) -> None:
        """Brings the results file up to date. Raises EnvironmentFault when it cannot be written."""
        self.results_file.write(self.header)
