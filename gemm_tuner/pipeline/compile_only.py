"""Compiles every configuration that the rules keep and says what each needs; nothing is run, and no GPU is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from gemm_tuner.compile.compile_tasks import interleaved
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED, UserError
from gemm_tuner.core.records import Status
from gemm_tuner.pipeline import prepare, serving_space, show
from gemm_tuner.pipeline.open_run import opened
from gemm_tuner.pipeline.run import announce, say_idle
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system import progress
from gemm_tuner.system.terminal_table import print_line

FLAG = "--compile_only"


def run(options: RunOptions, console: Console, out: Console) -> int:
    """Prints a table of each size; exit status 0 when every one has a configuration that compiles and fits.

    The tables of the run's folder are as those of tuning, without times. Raises UserError for a recording, and where a
    rule gives no answer for any size.
    """
    environment = prepare.look_around(options, for_a_run=False)
    if environment.recording is not None:
        raise UserError("a recording is played back, and nothing compiled", where=FLAG, hint=f"leave {FLAG} out")
    environment = replace(environment, gpus=())
    options = prepare.on_device(options, environment.device)
    say_idle(options, environment, console, FLAG)
    prepare.require_a_type([entry.problem for entry in options.entries], environment.device)
    with progress.waiting("apply the rules", console, len(options.entries)) as step:
        total, sizes = serving_space.cut_sizes(options, environment.device, (), lambda cut: step.advance())
    states = [size.left for size in sizes if isinstance(size.left, SizeState)]
    empty = [size.left for size in sizes if isinstance(size.left, UserError)]
    if not states:
        serving_space.require_answers(sizes)
    log = RunLog(console, out, options.started)
    with opened(options, environment, log, timed=False, resumes=False) as (_, session):
        announce(session, states, total, "kernels are compiled for it, and none is run")
        for fault in empty:
            print_line(console, fault.one_line())
        try:
            compile_all(session, states)
        finally:
            for state in states:
                state.write(session.folder.tables)
        for state in states:
            show.compiled_table(out, state)
            if not state.named(Status.OK):
                print_line(console, f"{state.problem.key}: none compiles and fits; {state.most_common_reason()}")
        print_line(console, f"every configuration of every size: {show.place(console, session.folder.tables)}")
        session.folder.tidy(keep=options.keep)
    return EXIT_OK if not empty and all(state.named(Status.OK) for state in states) else EXIT_UNVERIFIED


def compile_all(session: Session, states: Sequence[SizeState]) -> None:
    """Compiles what the rules kept of each size; what compiles and fits ends as ok, without a time."""
    wanted = [(state, list(state.kept)) for state in states]
    scripts = session.write_scripts(interleaved(wanted))
    with session.compile_stage(scripts) as compiling:
        compiling.compile_sizes(wanted, "compile")
    for state, names in wanted:
        for name in names:
            if not state.ended(name):
                state.record(name, Status.OK, "compiled")
