"""The three tasks of the main command: tuning, timing a results file, and checking a results file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from rich.console import Console

from gemm_tuner import profilers
from gemm_tuner.compile import worker_servers
from gemm_tuner.consumers.server import Server
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED, EnvironmentFault, UserError
from gemm_tuner.core.records import Problem, Target, Verdict, Verified
from gemm_tuner.decide.finals_plan import PROCESSES
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.pipeline import (
    finished_machine,
    idle_flags,
    predict,
    prepare,
    recorded,
    run_start,
    serving,
    serving_space,
    show,
)
from gemm_tuner.pipeline.cluster_work import OnCluster
from gemm_tuner.pipeline.first_kernels import FirstKernels
from gemm_tuner.pipeline.open_run import opened
from gemm_tuner.pipeline.predicted_candidates import is_checked
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_end import accounted, finish, say_finished, write_records
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.pipeline.serving_space import Cut
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system.terminal_table import print_line


def tune(options: RunOptions, console: Console, out: Console, cluster: OnCluster | None = None) -> int:
    """Tunes all sizes, here or on a cluster. Returns exit status 0 if every size has a verified configuration, 1 if one
    has none, be it that the rules leave none.

    Continues an unfinished run of the same sizes, unless ``options.fresh``. Raises EnvironmentFault if predicted
    configurations would have to replace those of --update.
    """
    with accounted(options, console, out) as log:
        return tune_by(options, log, cluster)


def tune_by(options: RunOptions, log: RunLog, cluster: OnCluster | None) -> int:
    """``tune`` with the log of the run."""
    known = cluster.machine if cluster else finished_machine.recall(options)
    works_here = cluster is None and known is None
    start_early(options, works_here=works_here)
    with log.waiting("look for GPUs"):
        environment = prepare.find_environment(options, known)
    if cluster:
        environment = prepare.on_cluster(environment, len(cluster.stations.gpus))
    if options.older and environment.source == "predicted":
        flag = "--update" if options.update_file else "--current"
        raise EnvironmentFault(f"{flag} needs a GPU to time on", hint=f"without {flag} the times are predicted")
    prepare.require_families_of_older(options)
    log.passed("look for GPUs")
    start_compilers(options, environment.device.target, works_here=works_here)
    options = prepare.on_device(options, environment.device)
    log.passed("try host functions")
    say_idle(options, environment, log.console)
    prepare.require_a_type([entry.problem for entry in options.entries], environment.device)
    servers = serving.asked_for(options, environment.device)
    if environment.recording is not None:
        recorded.require_all(options, environment.device, environment.recording, servers)
    stations = cluster.stations if cluster else None
    with (
        opened(options, environment, log, stations=stations) as (launchers, session),
        first_kernels(session, ahead=works_here and bool(launchers) and not servers) as kernels,
    ):
        if cluster:
            cluster.on_folder(session.folder.root)
        if run_start.is_finished(session.store):
            return say_finished(session)
        start_launchers(launchers if cluster is None else (), session)
        total, sizes = cut_sizes(options, session, servers, kernels)
        states = [size.left for size in sizes if isinstance(size.left, SizeState)]
        if not states:
            serving_space.require_answers(sizes)
        log.passed("apply the rules")
        announce(session, states, total)
        empty = [size for size in sizes if size.why_empty]
        for size in empty:
            session.results.record(size.problem, None, size.why_empty)
        try:
            if states:
                tune_sizes(session, states, launchers, kernels)
        finally:
            session.results.write()
            write_records(session, states, empty)
        for state in states:
            state.assert_complete()
        return finish(session)


def tune_sizes(session: Session, states: list[SizeState], launchers: Sequence[Launcher], kernels: FirstKernels) -> None:
    """Tunes the sizes that have configurations; without launchers their times are predicted."""
    too_short = session.limits.pace.lengthened(len(states))
    if too_short:
        session.log.say(too_short)
    with kernels:  # which ends before the records are written
        if launchers:
            Tuning(session, states, launchers, begun=kernels).run()
        else:
            predict.run(session, states)


def start_early(options: RunOptions, *, works_here: bool) -> None:
    """Starts what takes time before it is needed, while GPUs are looked for and the space is cut. works_here: this
    machine compiles and times, as far as it can."""
    if works_here:
        profilers.look_ahead(options.profiler)
        start_compilers(options, None, works_here=works_here)


def start_compilers(options: RunOptions, target: Target | None, *, works_here: bool) -> None:
    """Lets what compile workers are forked from start. target: None while it is unknown."""
    if works_here and options.compile_stage:
        worker_servers.begin(options.language, options.kind, target)


def first_kernels(session: Session, *, ahead: bool) -> FirstKernels:
    """What compiles for a run. ahead: from the first sizes on, unless kernels are compiled when they are timed, or the
    run goes on with what is compiled."""
    begins = ahead and session.options.compile_stage and not session.store.num_compiles()
    return FirstKernels(session, len(session.options.entries) if begins else 0)


def cut_sizes(
    options: RunOptions, session: Session, servers: Sequence[Server], kernels: FirstKernels
) -> tuple[int, list[Cut]]:
    """``serving_space.cut_sizes``, with its progress. kernels: takes what is left of each size."""
    with session.log.waiting("apply the rules", len(options.entries)) as step:

        def cut(size: Cut) -> None:
            step.advance()
            if isinstance(size.left, SizeState):
                kernels.add(size.left)

        return serving_space.cut_sizes(options, session.device, servers, cut)


def start_launchers(launchers: Iterable[Launcher], session: Session) -> None:
    """Lets launchers of this machine start while the space is cut: also those of finals and checks, which import torch
    as long as a run of one size screens; not with a budget, where the processes of finals follow one another."""
    for launcher in launchers:
        launcher.prepare()
        if launcher.overlaps and not session.limits.budget.bounded:
            launcher.prepare_finals(PROCESSES)
            launcher.prepare_check()
    session.log.passed("start launchers")


def say_idle(options: RunOptions, environment: Environment, console: Console, task: str = "") -> None:
    """Prints a line for each flag that has no effect."""
    for line in idle_flags.of_run(options, environment.source, task):
        print_line(console, line)


def announce(session: Session, states: Iterable[SizeState], total: int, how: str = "") -> None:
    """What the run is about to do, in words of one that does not tune (how), and the funnel of every size."""
    device, console = session.device, session.log.console
    how = (
        how
        or {
            "measured": f"timed under {session.profiler.name} {session.profiler.version}",
            "replayed": f"played back from {session.options.replay_dir}",
            "predicted": "assumed, since no such GPU is here: kernels are compiled and checked, times are predicted",
        }[session.environment.source]
    )
    print_line(console, f"{device.name} ({device.target.arch}), {how}")
    for state in states:
        if session.options.verbose:
            show.funnel(console, state.problem.key, total, state.pruned.funnel)
        else:
            show.funnel_line(console, state.problem, total, state.pruned.funnel)


def given(options: RunOptions, environment: Environment) -> list[SizeState]:
    """The states for the configurations of a results file. Raises UserError for an entry without one."""
    for number, entry in enumerate(options.entries, 1):
        if entry.config is None:
            raise UserError(
                f"{entry.problem.key} (entry {number}) has no configuration",
                where="--gemm_size_file",
                accepted="a results file, or ROCm's list of sizes with BLOCK_SIZE_M and so on",
            )
    return [prepare.given_state(e.problem, e.config, environment.device) for e in options.entries if e.config]


def benchmark(options: RunOptions, console: Console, out: Console) -> int:
    """Times the configurations of a results file and the vendor library, without tuning."""
    with accounted(options, console, out) as log:
        return benchmark_by(options, log)


def benchmark_by(options: RunOptions, log: RunLog) -> int:
    """``benchmark`` with the log of the run."""
    with log.waiting("look for GPUs"):
        environment = prepare.find_environment(options)
    if environment.source == "predicted":
        raise EnvironmentFault("--benchmark needs a GPU to time on", hint="--compare_wo_tuning checks without one")
    log.passed("look for GPUs")
    say_idle(options, environment, log.console, "--benchmark")
    options = prepare.on_device(options, environment.device)
    log.passed("try host functions")
    states, servers = (
        given(options, environment),
        serving.given(options.entries, environment.device, options.kernels),
    )
    if environment.recording is not None:
        recorded.require_given(states, environment.recording, timed=True)
    serving.add_given(servers, states, options.entries)
    with opened(options, environment, log, resumes=False) as (launchers, session):
        try:
            Tuning(session, states, launchers, given=servers).run_given()
        finally:
            session.results.write()
            write_records(session, states)
        return finish(session)


def compare_without_tuning(options: RunOptions, console: Console, out: Console) -> int:
    """Checks the configurations of a results file. Returns exit status 1 if one is wrong."""
    environment = prepare.find_environment(options)
    say_idle(options, environment, console, "--compare_wo_tuning")
    options = prepare.on_device(options, environment.device)
    states = given(options, environment)
    if environment.recording is not None:
        recorded.require_given(states, environment.recording, timed=False)
    log = RunLog(console, out, options.started)
    with opened(options, environment, log, timed=False, resumes=False) as (launchers, session):
        return check_given(session, states, launchers)


def is_beyond(session: Session, state: SizeState) -> bool:
    """Whether nothing runs the kernels of a size's configuration without a GPU."""
    return not all(is_checked(session.options, state, name) for name in state.kept)


def check_given(session: Session, states: list[SizeState], launchers: Sequence[Launcher]) -> int:
    options, environment = session.options, session.environment
    only_on_gpu = {state.problem for state in states if environment.source == "predicted" and is_beyond(session, state)}
    here = [state for state in states if state.problem not in only_on_gpu]
    wanted = [(state.problem, config) for state in here for config in state.kept.values()]
    scripts = session.write_scripts(wanted)
    found: list[str | None] = []

    def decided(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
        found.append(None if any(one.how is Verified.FALSE for one in verdicts) else name)

    say = partial(print_line, session.log.console, style="red")
    checker = Fleet(launchers, say) if launchers else session.executor.checker()
    with session.compile_stage(scripts) as compiling:
        if environment.source != "replayed":
            compiling.compile_sizes([(state, list(state.kept)) for state in here], "compile")
        order = [(state, [n for n in state.kept if not state.ended(n)]) for state in here]
        order = [(state, names) for state, names in order if names]
        verdicts = session.check_stage(scripts, compiling).run(checker, order, decided)
    rows = [(state.problem, next(iter(state.kept)), verdicts.get(state.problem, [])) for state in states]
    for state in states:
        for name, status, message in session.store.failures(state.problem):
            state.record(name, status, message)
    why_not = {state.problem: state.why_not(next(iter(state.kept))) for state in here}
    why_not |= dict.fromkeys(only_on_gpu, "its kernels run on a GPU only")
    show.verdicts_table(session.log.out, rows, why_not)
    right = sum(name is not None for name in found)
    where = {
        "measured": "on the GPU",
        "replayed": "when the recording was made",
        "predicted": "in Triton's interpreter, at small sizes with the same tile",
    }[environment.source]
    others = f"; {len(only_on_gpu)} could be checked on a GPU only" if only_on_gpu else ""
    print_line(session.log.console, f"{right} of {len(states)} configurations are right, checked {where}{others}")
    session.folder.tidy(keep=options.keep)
    return EXIT_OK if right == len(states) else EXIT_UNVERIFIED
