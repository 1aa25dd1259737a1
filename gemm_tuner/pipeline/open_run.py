"""Opens a run: its profiler, folder, store, session, and the launchers of its GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from gemm_tuner import profilers
from gemm_tuner.executors.cluster.cluster_executor import Stations
from gemm_tuner.executors.local import Profilers
from gemm_tuner.languages import kernel_cache
from gemm_tuner.measure import replay
from gemm_tuner.measure.budget import COSTS_FILE, Costs
from gemm_tuner.measure.gpu_watch import find_sensor
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.pipeline import prepare, recorded, run_start
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.run_options import IN_PROCESS, RunOptions
from gemm_tuner.pipeline.session import ProfilerUsed, Session, how_timed, session_of
from gemm_tuner.profilers import Profiler, VersionOf
from gemm_tuner.profilers.proton import Proton
from gemm_tuner.source import codegen
from gemm_tuner.store import older_configs
from gemm_tuner.store.results_file import read_earlier, require_same_device
from gemm_tuner.system import bug_report, interruption

SCREEN_FLAG = "--screen_with"


@contextmanager
def opened(
    options: RunOptions,
    environment: Environment,
    log: RunLog,
    *,
    timed: bool = True,
    resumes: bool = True,
    stations: Stations | None = None,
) -> Iterator[tuple[Sequence[Launcher], Session]]:
    """(launchers, one per GPU; session) of a run, whose folder is locked while the block runs.

    timed: a profiler is needed. resumes: continue an unfinished run of the same sizes. stations: of a cluster.
    Errors are raised before any file is written if possible.
    """
    codegen.environment(options.templates_dir)
    if options.results_file is not None:
        earlier = read_earlier(options.results_file)
        require_same_device(options.results_file, earlier, environment.device.name, environment.device.target.arch)
    with log.waiting("find the profiler"):
        backend, measured = environment.device.target.backend, environment.source == "measured"
        version_of = stations.version_of if stations else profilers.version_here
        used = profilers_of(options, backend, timed, version_of) if measured else None
    named = named_of(used.finals, version_of) if used else environment.source
    if used and used.screening is not used.finals:
        named += f", screening: {named_of(used.screening, version_of) if used.screening else IN_PROCESS}"
    log.passed("find the profiler")
    with interruption.Interruption().listening() as asked, ExitStack() as stack:
        folder, store = run_start.begin(
            options, environment, named, stack, resumes=resumes,
            say=log.say,
        )  # fmt: skip
        stack.enter_context(bug_report.belongs_to(folder.root))
        for look in (prepare.note, prepare.absent_note):
            if warning := look(options, environment.device.target.arch):
                log.say(warning)
        if options.updates_in_place:
            options = replace(options, older=older_configs.kept(store), older_served=older_configs.kept_served(store))
        began_s = store.fact("began_s", time.time())
        stack.enter_context(kernel_cache.in_use(folder.cache, options.language, began_s, options.cache_limit_bytes))
        said = profiler_used(used.finals if used else None, environment, version_of)
        costs = Costs(folder.cache / COSTS_FILE)
        session = session_of(options, environment, folder, store, asked, log, said, costs, used, stations)
        launchers: Sequence[Launcher] = ()
        if not run_start.is_finished(store):
            if used is not None:
                watch_and_record(session, used)
            with log.waiting("start launchers"):
                launchers = session.executor.launchers()
        stack.callback(log.passed, "end the launchers")
        for launcher in launchers:
            stack.callback(launcher.close)
        if session.gpus.sensor is not None:
            stack.callback(session.gpus.sensor.close)
        log.passed("open the run")
        yield launchers, session


def named_of(profiler: Profiler, version_of: VersionOf) -> str:
    return f"{profiler.name} {version_of(profiler) or ''}".strip()


def screener_of(
    options: RunOptions, profiler: Profiler, backend: str, version_of: VersionOf = profilers.version_here
) -> Profiler | None:
    """The profiler of screening; None for proton inside the launcher process. Raises EnvironmentFault for a tool that
    is not installed where kernels are timed."""
    if options.screen_with not in (profilers.AUTO, IN_PROCESS):
        return profilers.select(options.screen_with, backend, SCREEN_FLAG, version_of)
    proton = Proton()
    if proton.supports(backend) and version_of(proton) is not None:
        return None
    if options.screen_with == IN_PROCESS:
        what = f"proton cannot time {backend} kernels here"
        raise profilers.unusable(what, backend, proton.install_hint, SCREEN_FLAG, version_of)
    return profiler


def profilers_of(options: RunOptions, backend: str, timed: bool, version_of: VersionOf) -> Profilers:
    """The profilers of finals and screening. version_of: where kernels are timed. Raises EnvironmentFault for a tool
    that is not installed there."""
    # Checks need no profiler; proton is always installed and is never started.
    finals = profilers.select(options.profiler if timed else "proton", backend, version_of=version_of)
    return Profilers(finals, screener_of(options, finals, backend, version_of))


def profiler_used(profiler: Profiler | None, environment: Environment, version_of: VersionOf) -> ProfilerUsed:
    """The profiler for the results file: that of this run, or of the recording."""
    recording = environment.recording
    if profiler is not None:
        return ProfilerUsed(profiler.name, version_of(profiler) or "")
    return (
        ProfilerUsed(f"replay of {recording.profiler.name}", recording.profiler_version)
        if recording
        else ProfilerUsed()
    )


def watch_and_record(session: Session, used: Profilers) -> None:
    """For a measured run: opens the GPU sensors, and writes recording.json for a later replay."""
    environment, raw, options = session.environment, session.folder.raw, session.options
    if not environment.remote:
        session.gpus.sensor, reason = find_sensor(environment.device.target.backend, session.gpus.names)
    else:
        reason = "it is on another machine"
    if session.gpus.sensor is None and reason:
        session.log.say(f"throttling of the GPU is not watched: {reason}")
    if not (raw / replay.RECORDING).exists():
        how, made_with = how_timed(options, environment), recorded.made_with(options)
        by = used.finals, session.profiler.version, how, made_with, used.screening or Proton()
        replay.write_recording(raw, environment.machine, environment.gpus[0], *by)
