"""The objects that the stages of a run share. Each stage is given only those that it uses."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gemm_tuner import __version__
from gemm_tuner.compile import compile_tasks
from gemm_tuner.core.records import Config, Device, Problem
from gemm_tuner.core.script import Script
from gemm_tuner.executors.cluster.cluster_executor import Stations
from gemm_tuner.executors.executor import Executor
from gemm_tuner.executors.local import LocalExecutor, Profilers
from gemm_tuner.measure.budget import Budget, Costs, Pace
from gemm_tuner.pipeline import cluster_work
from gemm_tuner.pipeline.check_stage import CheckStage
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.pipeline.run_results import RunResults
from gemm_tuner.store import results
from gemm_tuner.store.results import Header
from gemm_tuner.store.run_folder import RunFolder
from gemm_tuner.store.store import Store
from gemm_tuner.system.interruption import Interruption

Scripts = dict[tuple[str, str], Script]  # by family and signature


@dataclass(frozen=True)
class ProfilerUsed:
    """The profiler of a run; "" if nothing is timed."""

    name: str = ""
    version: str = ""


@dataclass(frozen=True)
class Session:
    """The shared objects of a run, and factories of its stages."""

    options: RunOptions
    folder: RunFolder
    store: Store
    limits: Limits
    log: RunLog
    gpus: Gpus
    executor: Executor
    results: RunResults
    profiler: ProfilerUsed = ProfilerUsed()

    @property
    def environment(self) -> Environment:
        return self.gpus.environment

    @property
    def device(self) -> Device:
        return self.gpus.environment.device

    def write_scripts(self, wanted: Iterable[tuple[Problem, Config]]) -> Scripts:
        """Writes the scripts of these configurations of these problems into the run's folder."""
        options, target = self.options, self.device.target
        with self.log.stage("write scripts"):
            return compile_tasks.write_scripts(
                options.templates_dir, self.folder.scripts, wanted, target, options.kernels.values()
            )

    def compile_stage(self, scripts: Scripts) -> CompileStage:
        compiler, of = self.executor.compiler(), (self.device, self.options.language)
        return CompileStage(scripts, compiler, *of, self.folder, self.store, self.limits, self.log, self.executor.wants)

    def planner(self, scripts: Scripts) -> Planner:
        return Planner(self.options, self.device, self.folder, scripts)

    def check_stage(self, scripts: Scripts, compiling: CompileStage | None) -> CheckStage:
        every, seed = self.options.check_all_finalists, self.options.seed
        return CheckStage(
            scripts, self.gpus, self.folder, self.store, self.limits, self.log, compiling, all_of_them=every, seed=seed
        )


def session_of(
    options: RunOptions,
    environment: Environment,
    folder: RunFolder,
    store: Store,
    interruption: Interruption,
    log: RunLog,
    profiler: ProfilerUsed = ProfilerUsed(),
    costs: Costs | None = None,
    profilers: Profilers | None = None,
    stations: Stations | None = None,
) -> Session:
    """Creates a session. costs: measured costs of starts on this machine. profilers: of a measured run. stations: of a
    cluster. A predicted run has no budget."""
    budget = Budget(0.0 if environment.source == "predicted" else options.budget_s, options.started)
    about, measured = f"{profiler.version}, {environment.device.name}", environment.source == "measured"
    limits = Limits(interruption, Pace(budget, costs or Costs(), profiler.name, about, measured))
    path = folder.results_path(options.results_file)
    header = header_of(options, environment, profiler, results.run_reference(path, folder.root))
    run_results = RunResults(path, [entry.problem for entry in options.entries], header)
    gpus = Gpus(environment, limits, log, options.gpu_wait_s)
    here = LocalExecutor(
        language=options.language,
        target=environment.device.target,
        kind=options.kind,
        folder=folder,
        workers=options.compile_workers,
        compile_limit_s=options.compile_limit_s,
        launch_limit_s=options.launch_limit_s,
        wind_down=lambda: interruption.requested,
        say=log.say,
        shares_gpus=lambda: gpus.are_shared,
        profilers=profilers,
        gpus=environment.gpus,
        recording=environment.recording,
        torch_ahead=options.torch_ahead,
    )
    executor = cluster_work.executor(here, stations, store, options) if stations else here
    return Session(options, folder, store, limits, log, gpus, executor, run_results, profiler)


def header_of(options: RunOptions, environment: Environment, profiler: ProfilerUsed, run: str) -> Header:
    """The header of a results file for a run that begins now. run: its folder, from ``run_reference``."""
    machine, began = environment.machine, datetime.datetime.now(datetime.timezone.utc)
    return Header(
        tool_version=__version__,
        date=began.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        device=environment.device.name,
        arch=environment.device.target.arch,
        num_sms=environment.device.num_sms,
        driver=machine.driver,
        triton=machine.versions.get("triton", ""),
        torch=machine.versions.get("torch", ""),
        python=machine.versions.get("python", ""),
        profiler=profiler.name,
        profiler_version=profiler.version,
        source=environment.source,
        run=run,
        **how_timed(options, environment),
    )


def how_timed(options: RunOptions, environment: Environment) -> dict[str, Any]:
    """The header's fields about operands and L2: from the recording for a replay; empty for predicted times."""
    if environment.recording is not None:
        return environment.recording.how
    if environment.source == "predicted":
        return {"init_type": "", "seed": options.seed, "l2": ""}
    l2 = "rotating" if options.rotating_mib else "flushed"
    return {"init_type": options.init_type, "seed": options.seed, "l2": l2}
