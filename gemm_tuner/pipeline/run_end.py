"""Ends a run: its records, what a person reads last, its exit status."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable

from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.pipeline import finished_machine, resume, run_summary, show
from gemm_tuner.pipeline.run_identity import configs_sha
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store import older_configs, run_record
from gemm_tuner.system import program

COMPILED_LATE = "kernels were compiled in the profiled process although all were compiled before"


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
