"""The order of things: the one place that knows all stages."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from rich.console import Console

from gemm_tuner import profilers
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED, EnvironmentFault, UserError
from gemm_tuner.core.records import Problem, Verdict
from gemm_tuner.gemm.arch_types import require_a_type
from gemm_tuner.languages.triton import kernel_cache
from gemm_tuner.measure import replay
from gemm_tuner.measure.budget import COSTS_FILE, Costs
from gemm_tuner.measure.fleet import Launcher
from gemm_tuner.measure.gpu_watch import find_sensor
from gemm_tuner.measure.launcher_process import InterpreterLauncher, LiveLauncher
from gemm_tuner.pipeline import (
    finished_machine,
    idle_flags,
    predict,
    prepare,
    recorded,
    resume,
    run_start,
    run_summary,
    serving,
    serving_refusal,
    show,
)
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_identity import configs_sha
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.session import ProfilerUsed, Session, how_timed, session_of
from gemm_tuner.pipeline.settings import Settings
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.source import codegen
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store import older_configs, run_record
from gemm_tuner.store.results_file import read_earlier, require_same_device
from gemm_tuner.system import bug_report, interruption, program

COMPILED_LATE = "kernels were compiled in the profiled process although all were compiled before"


def tune(settings: Settings, console: Console, out: Console) -> int:
    """Tunes all sizes; exit status 0 when every one has a verified configuration.

    Goes on with a run of the same sizes that did not end, unless the settings say fresh. Raises EnvironmentFault where
    older configurations would have to give way to predicted ones.
    """
    environment = prepare.find_environment(settings, finished_machine.recall(settings))
    if settings.older and environment.source == "predicted":
        raise EnvironmentFault("--update needs a GPU to time on", hint="without --update the times are predicted")
    say_idle(settings, environment, console)
    require_a_type([entry.problem for entry in settings.entries], environment.device)
    servers = serving_refusal.asked_for(settings, environment.device)
    if environment.recording is not None:
        recorded.require_all(settings, environment.device, environment.recording)
    with opened(settings, environment, console, out) as (launchers, session):
        if resume.is_finished(session.store):
            return say_finished(session)
        candidates = prepare.load_space(settings, environment.device)
        states, empty, kernel_space = [], {}, serving.kernel_space(servers, settings, environment.device)
        for entry in settings.entries:
            try:
                pruned = serving.cut_space(candidates, entry.problem, environment.device, servers)
                args = candidates, entry.problem, pruned, servers, kernel_space, environment.device
                states.append(serving.state_of(*args))
            except UserError as error:
                empty[entry.problem] = error
        if not states:
            raise next(iter(empty.values()))
        announce(session, states, len(candidates.configs))
        too_short = session.limits.pace.lengthened(len(states))
        if too_short:
            session.log.say(too_short)
        for problem, fault in empty.items():
            session.outcomes.record(problem, None, fault.one_line())
        try:
            if launchers:
                Tuning(session, states, launchers).run()
            else:
                predict.run(session, states)
        finally:
            session.outcomes.write()
            write_records(session, states)
        for state in states:
            state.assert_complete()
        return finish(session)


def say_idle(settings: Settings, environment: Environment, console: Console, task: str = "") -> None:
    """A line for each flag that changes nothing."""
    for line in idle_flags.of_run(settings, environment.source, task):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def opened(
    settings: Settings,
    environment: Environment,
    console: Console,
    out: Console,
    *,
    timed: bool = True,
    resumes: bool = True,
) -> Iterator[tuple[list[Launcher], Session]]:
    """The launchers, one a GPU and none without, and the session, its folder locked while the block runs.

    timed: a profiler is needed. resumes: a run of the same sizes that did not end goes on.
    Raises before any file is written where that is possible.
    """
    codegen.environment(settings.templates_dir)
    if settings.results_file is not None:
        earlier = read_earlier(settings.results_file)
        require_same_device(settings.results_file, earlier, environment.device.name, environment.device.target.arch)
    profiler: profilers.Profiler | None = None
    if environment.source == "measured":
        # A check needs no profiler: proton is always there and never started.
        profiler = profilers.select(settings.profiler if timed else "proton", environment.device.target.backend)
    named = f"{profiler.name} {profiler.version() or ''}".strip() if profiler else environment.source
    with interruption.Interruption().listening() as asked, ExitStack() as stack:
        if warning := prepare.note(settings, environment.device.target.arch):
            console.print(warning, highlight=False, soft_wrap=True)
        folder, store = run_start.begin(
            settings, environment, named, stack, resumes=resumes,
            say=lambda text: console.print(text, highlight=False, soft_wrap=True),
        )  # fmt: skip
        stack.enter_context(bug_report.belongs_to(folder.root))
        if settings.updates_in_place:
            settings = replace(settings, older=older_configs.kept(store), older_served=older_configs.kept_served(store))
        began_s = store.fact("began_s", time.time())
        stack.enter_context(kernel_cache.in_use(folder.cache, began_s, settings.cache_limit_bytes))
        log, costs = RunLog(console, out, settings.started), Costs(folder.cache / COSTS_FILE)
        used = profiler_used(profiler, environment)
        session = session_of(settings, environment, folder, store, asked, log, used, costs)
        launchers = [] if resume.is_finished(store) else launchers_for(session, profiler)
        if session.gpus.sensor is not None:
            stack.callback(session.gpus.sensor.close)
        yield launchers, session


def profiler_used(profiler: profilers.Profiler | None, environment: Environment) -> ProfilerUsed:
    """What a results file says of the profiler: this run's, or that of the recording."""
    recording = environment.recording
    if profiler is not None:
        return ProfilerUsed(profiler.name, profiler.version() or "")
    return (
        ProfilerUsed(f"replay of {recording.profiler.name}", recording.profiler_version)
        if recording
        else ProfilerUsed()
    )


def launchers_for(session: Session, profiler: profilers.Profiler | None) -> list[Launcher]:
    """One a GPU; the recording's when a run is played back; none when nothing can be timed."""
    environment, folder, settings = session.environment, session.folder, session.settings
    backend = environment.device.target.backend
    if profiler is not None:
        session.gpus.sensor, reason = find_sensor(backend, session.gpus.names)
        if session.gpus.sensor is None:
            session.log.say(f"throttling of the GPU is not watched: {reason}")
        if not (folder.raw / replay.RECORDING).exists():
            replay.write_recording(
                folder.raw,
                environment.machine,
                environment.gpus[0],
                profiler,
                how_timed(settings, environment),
                recorded.made_with(settings),
            )
        asked, limit_s = session.limits.interruption, settings.launch_limit_s
        return [
            LiveLauncher(profiler, folder.cache, backend, gpu, wind_down=lambda: asked.asked, launch_limit_s=limit_s)
            for gpu in environment.gpus
        ]
    if environment.recording is not None:
        return [replay.ReplayLauncher(environment.recording)]
    return []


def say_finished(session: Session) -> int:
    """For a command whose run has ended before: says so and measures nothing."""
    record = run_record.read(session.folder.root)
    chosen = sum(1 for size in record.sizes if size.chosen)
    session.log.console.print(
        f"this run is finished: {chosen} of {len(session.settings.entries)} sizes have a verified configuration, "
        f"{session.environment.source} {record.header['date']}; --fresh tunes again",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    session.log.console.print(f"results: {record.results_file}", highlight=False, soft_wrap=True)
    if session.settings.compile_stage and record.facts.get("compiled under the profiler"):
        session.log.console.print(f"[red]{COMPILED_LATE}")
    every_size = chosen == len(session.settings.entries)
    return int(session.store.fact("exit status", EXIT_OK if every_size else EXIT_UNVERIFIED))


def announce(session: Session, states: Iterable[SizeState], total: int) -> None:
    """What the run is about to do, and the funnel of every size."""
    device, console = session.device, session.log.console
    how = {
        "measured": f"timed under {session.profiler.name} {session.profiler.version}",
        "replayed": f"played back from {session.settings.replay_dir}",
        "predicted": "assumed, since no such GPU is here: kernels are compiled and checked, times are predicted",
    }[session.environment.source]
    console.print(f"{device.name} ({device.target.arch}), {how}", highlight=False)
    for state in states:
        if session.settings.verbose:
            show.funnel(console, state.problem.key, total, state.pruned.funnel)
        else:
            show.funnel_line(console, state.problem, total, state.pruned.funnel)


def write_records(session: Session, states: Iterable[SizeState]) -> None:
    """The tables of all sizes and run.json."""
    with session.log.stage("write tables"):
        for state in states:
            state.write(session.folder.tables)
    run_record.write(session.folder.root, run_summary.record_of(session, states))


def finish(session: Session) -> int:
    """Prints the outcome and tidies up; the exit status of the run."""
    show.results_table(session.log.out, session.settings, session.environment, session.outcomes)
    if session.settings.time_breakdown or session.settings.verbose:
        show.stage_table(session.log.out, session.log.stage_seconds)
    say = session.log.console.print
    for problem, why in session.outcomes.file.kept_instead().items():
        say(f"{problem.key}: its earlier row stays in the results file: {why}", highlight=False, soft_wrap=True)
    for line in show.notes(session.log.notes):
        say(line, highlight=False)
    counts = len(session.outcomes.choices), len(session.settings.entries)
    say(show.summary_line(*counts, time.monotonic() - session.log.started, session.log.facts), highlight=False)
    say(f"results: {show.place(session.log.console, session.outcomes.path)}", highlight=False, soft_wrap=True)
    tables = show.place(session.log.console, session.folder.tables)
    say(f"every configuration of every size: {tables}", highlight=False, soft_wrap=True)
    run = shlex.quote(show.place(session.log.console, session.folder.root))
    say(f"to look at it: {program.name()} report {run}", highlight=False, soft_wrap=True)
    if session.settings.updates_in_place:
        session.store.set_fact("configs_sha", configs_sha(older_configs.read(session.outcomes.path)))
    status = EXIT_OK if len(session.outcomes.choices) == len(session.settings.entries) else EXIT_UNVERIFIED
    if session.settings.compile_stage and session.log.facts.get("compiled under the profiler"):
        say(f"[red]{COMPILED_LATE}: please report this")
        status = EXIT_UNVERIFIED
    session.store.set_fact("exit status", status)
    session.store.set_fact("state", resume.FINISHED)
    finished_machine.keep(session.folder.root, session.environment.machine)
    session.folder.tidy(keep=session.settings.keep)
    return status


def given(settings: Settings, environment: Environment) -> list[SizeState]:
    """The ledgers of a results file's own configurations. Raises UserError for an entry without one."""
    for number, entry in enumerate(settings.entries, 1):
        if entry.config is None:
            raise UserError(
                f"{entry.problem.key} (entry {number}) has no configuration",
                where="--gemm_size_file",
                accepted="a results file, or ROCm's list of sizes with BLOCK_SIZE_M and so on",
            )
    return [prepare.given_ledger(e.problem, e.config, environment.device) for e in settings.entries if e.config]


def benchmark(settings: Settings, console: Console, out: Console) -> int:
    """Times the configurations of a results file against the vendor library; tunes nothing."""
    environment = prepare.find_environment(settings)
    if environment.source == "predicted":
        raise EnvironmentFault("--benchmark needs a GPU to time on", hint="--compare_wo_tuning checks without one")
    say_idle(settings, environment, console, "--benchmark")
    states, servers = (
        given(settings, environment),
        serving.given(settings.entries, environment.device, settings.kernels),
    )
    serving.add_given(servers, states, settings.entries)
    with opened(settings, environment, console, out, resumes=False) as (launchers, session):
        try:
            Tuning(session, states, launchers, given=servers).run_given()
        finally:
            session.outcomes.write()
            write_records(session, states)
        return finish(session)


def compare_without_tuning(settings: Settings, console: Console, out: Console) -> int:
    """Checks the configurations of a results file; exit status 1 when one is wrong."""
    environment = prepare.find_environment(settings)
    say_idle(settings, environment, console, "--compare_wo_tuning")
    states = given(settings, environment)
    with opened(settings, environment, console, out, timed=False, resumes=False) as (launchers, session):
        return check_given(session, states, launchers)


def check_given(session: Session, states: list[SizeState], launchers: list[Launcher]) -> int:
    settings, environment = session.settings, session.environment
    wanted = [(state.problem, config) for state in states for config in state.kept.values()]
    scripts = session.write_scripts(wanted)
    found: dict[Problem, tuple[str, list[Verdict]]] = {}

    def settled(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
        found[problem] = (name or "", verdicts)

    checker = launchers[0] if launchers else InterpreterLauncher(session.folder.cache)
    with session.compile_stage(scripts) as compiling:
        if environment.source != "replayed":
            compiling.compile_sizes([(state, list(state.kept)) for state in states], "compile")
        order = [(state, [n for n in state.kept if not state.ended(n)]) for state in states]
        order = [(state, names) for state, names in order if names]
        verdicts = session.check_stage(scripts, compiling).run(checker, order, settled)
    rows = [(state.problem, next(iter(state.kept)), verdicts.get(state.problem, [])) for state in states]
    for state in states:
        for name, status, message in session.store.failures(state.problem):
            state.record(name, status, message)
    show.verdicts_table(
        session.log.out, rows, {state.problem: state.why_not(next(iter(state.kept))) for state in states}
    )
    right = sum(1 for name, _ in found.values() if name)
    where = "on the GPU" if launchers else "in Triton's interpreter, at small sizes with the same tile"
    session.log.console.print(f"{right} of {len(states)} configurations are right, checked {where}", highlight=False)
    session.folder.tidy(keep=settings.keep)
    return EXIT_OK if right == len(states) else EXIT_UNVERIFIED
