"""The order of things: the one place that knows all stages."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console

from gemm_tuner import codegen, compile_stage, predict, prepare, profilers, replay, run_folder, show
from gemm_tuner.errors import EXIT_OK, EXIT_UNVERIFIED, EnvironmentFault, UserError
from gemm_tuner.launch import InterpreterLauncher, LiveLauncher
from gemm_tuner.ledger import Ledger
from gemm_tuner.prepare import Setting
from gemm_tuner.records import GemmProblem, Verdict
from gemm_tuner.session import Session
from gemm_tuner.settings import Settings
from gemm_tuner.steps import check_candidates, compile_wanted, write_scripts
from gemm_tuner.tune import Launcher, Tuning


def tune(settings: Settings, console: Console, out: Console) -> int:
    """Tunes all sizes; exit status 0 when every one has a verified configuration."""
    setting = prepare.find_setting(settings)
    candidates = prepare.load_space(settings, setting.device)
    ledgers, empty = [], {}
    for entry in settings.entries:
        try:
            ledgers.append(prepare.open_ledger(candidates, entry.problem, setting.device))
        except UserError as error:
            empty[entry.problem] = error
    if not ledgers:
        raise next(iter(empty.values()))
    launchers, session = open_session(settings, setting, console, out)
    announce(session, ledgers, len(candidates.configs))
    for problem, fault in empty.items():
        session.settle(problem, None, fault.one_line())
    try:
        if launchers:
            Tuning(session, ledgers, launchers).run()
        else:
            predict.run(session, ledgers)
    finally:
        write_tables(session, ledgers)
    for ledger in ledgers:
        ledger.assert_complete()
    return finish(session)


def open_session(
    settings: Settings, setting: Setting, console: Console, out: Console, *, timed: bool = True
) -> tuple[list[Launcher], Session]:
    """The launchers, one a GPU and none without, and the session. Raises before any file is written."""
    codegen.environment(settings.templates_dir)
    launchers: list[Launcher] = []
    backend = setting.device.target.backend
    profiler = None
    if setting.source == "measured":
        # A check needs no profiler: proton is always there and never started.
        profiler = profilers.select(settings.profiler if timed else "proton", backend)
    folder = run_folder.create(settings.output_dir)
    session = Session(settings, setting, folder, console, out)
    if profiler is not None:
        session.profiler_name, session.profiler_version = profiler.name, profiler.version() or ""
        launchers += [LiveLauncher(profiler, folder.cache, backend, gpu) for gpu in setting.gpus]
        replay.write_recording(folder.raw, setting.machine, setting.gpus[0], profiler, session.how())
    elif setting.recording is not None:
        session.profiler_name = f"replay of {setting.recording.profiler.name}"
        session.profiler_version = setting.recording.profiler_version
        launchers.append(replay.ReplayLauncher(setting.recording))
    return launchers, session


def announce(session: Session, ledgers: Iterable[Ledger], total: int) -> None:
    """What the run is about to do, and the funnel of every size."""
    device, console = session.setting.device, session.console
    how = {
        "measured": f"timed under {session.profiler_name} {session.profiler_version}",
        "replayed": f"played back from {session.settings.replay_dir}",
        "predicted": "without a GPU: kernels are compiled and checked, times are predicted and not measured",
    }[session.setting.source]
    console.print(f"{device.name} ({device.target.arch}), {how}", highlight=False)
    ledgers = list(ledgers)
    for ledger in ledgers:
        if session.settings.verbose or len(ledgers) == 1:
            show.funnel(console, ledger.problem.key, total, ledger.pruned.funnel)
        else:
            console.print(
                show.funnel_line(ledger.problem, total, ledger.pruned.funnel), highlight=False, soft_wrap=True
            )


def write_tables(session: Session, ledgers: Iterable[Ledger]) -> None:
    with session.stage("write tables"):
        for ledger in ledgers:
            ledger.write(session.folder.tables)


def finish(session: Session) -> int:
    """Prints the outcome and tidies up; the exit status of the run."""
    show.results_table(session.out, session)
    if session.settings.time_breakdown or session.settings.verbose:
        show.stage_table(session.out, session)
    say = session.console.print
    say(show.summary_line(session, time.monotonic() - session.started), highlight=False, soft_wrap=True)
    say(f"results: {session.results_path}", highlight=False, soft_wrap=True)
    say(f"every configuration of every size: {session.folder.tables}", highlight=False, soft_wrap=True)
    session.folder.tidy(keep=session.settings.keep)
    if session.settings.compile_stage and session.facts.get("compiled under the profiler"):
        say("[red]kernels were compiled in the profiled process although all were compiled before: please report this")
        return EXIT_UNVERIFIED
    return EXIT_OK if len(session.choices) == len(session.settings.entries) else EXIT_UNVERIFIED


def given(settings: Settings, setting: Setting) -> list[Ledger]:
    """The ledgers of a results file's own configurations. Raises UserError for an entry without one."""
    for number, entry in enumerate(settings.entries, 1):
        if entry.config is None:
            raise UserError(
                f"{entry.problem.key} (entry {number}) has no configuration",
                where="--gemm_size_file",
                accepted="a results file, or ROCm's list of sizes with BLOCK_SIZE_M and so on",
            )
    return [prepare.given_ledger(e.problem, e.config, setting.device) for e in settings.entries if e.config]


def benchmark(settings: Settings, console: Console, out: Console) -> int:
    """Times the configurations of a results file against the vendor library; tunes nothing."""
    setting = prepare.find_setting(settings)
    if setting.source == "predicted":
        raise EnvironmentFault("--benchmark needs a GPU to time on", hint="--compare_wo_tuning checks without one")
    ledgers = given(settings, setting)
    launchers, session = open_session(settings, setting, console, out)
    Tuning(session, ledgers, launchers).run_given()
    return finish(session)


def compare_without_tuning(settings: Settings, console: Console, out: Console) -> int:
    """Checks the configurations of a results file; exit status 1 when one is wrong."""
    setting = prepare.find_setting(settings)
    ledgers = given(settings, setting)
    launchers, session = open_session(settings, setting, console, out, timed=False)
    wanted = [(ledger.problem, config) for ledger in ledgers for config in ledger.kept.values()]
    scripts = write_scripts(session, wanted)
    if setting.source != "replayed":
        compile_wanted(session, wanted, scripts, ledgers, "compile")
    found: dict[GemmProblem, tuple[str, list[Verdict]]] = {}

    def settled(problem: GemmProblem, name: str | None, verdicts: list[Verdict]) -> None:
        found[problem] = (name or "", verdicts)

    checker = launchers[0] if launchers else InterpreterLauncher(session.folder.cache)
    order = [(ledger, compile_stage.runnable(ledger)) for ledger in ledgers]
    order = [(ledger, names) for ledger, names in order if names]
    verdicts = check_candidates(session, checker, scripts, order, settled)
    show.verdicts_table(
        out, [(ledger.problem, next(iter(ledger.kept)), verdicts.get(ledger.problem, [])) for ledger in ledgers]
    )
    right = sum(1 for name, _ in found.values() if name)
    where = "on the GPU" if launchers else "in Triton's interpreter, at small sizes with the same tile"
    console.print(f"{right} of {len(ledgers)} configurations are right, checked {where}", highlight=False)
    session.folder.tidy(keep=settings.keep)
    return EXIT_OK if right == len(ledgers) else EXIT_UNVERIFIED
