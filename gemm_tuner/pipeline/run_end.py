"""The end of a run: its records, the final output, and the exit status."""

from __future__ import annotations

import dataclasses
import resource
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline import finished_machine, run_start, run_summary, show
from gemm_tuner.pipeline.run_identity import configs_sha
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.pipeline.serving_space import Cut
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.prune import FunnelRow
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store import older_configs, results, run_record
from gemm_tuner.store.run_record import Final, FunnelStep, RunRecord, SizeRecord
from gemm_tuner.store.served import served_rows
from gemm_tuner.system import program
from gemm_tuner.system.terminal_table import print_line

NOT_COMPARED = "skip_check, or neither a reference nor a second configuration to compare with"
LEFT_OUT = "No rule rejects these; the search asked for others, or without a GPU the model."
OF_ANOTHER_RUN = "the results file has a row of another run"
# Of a date as text, without fractions of a second.
SECONDS = len("2026-01-01T00:00:00")
COMPILED_LATE = "kernels were compiled in the profiled process although all were compiled before"


@contextmanager
def accounted(options: RunOptions, console: Console, out: Console) -> Iterator[RunLog]:
    """The log of a run that takes place in the block. At its end it says where the time of the command went, if that
    is wanted and stages have run."""
    log = RunLog(console, out, options.started, began=options.began)
    log.passed("start")
    yield log
    log.passed("close the run")
    if log.stage_seconds and (options.time_breakdown or options.verbose):
        run_summary.stage_table(out, log)
        if starts := log.notes.get("starts"):
            run_summary.start_table(out, starts)


def write_records(session: Session, states: Iterable[SizeState], empty: Sequence[Cut] = ()) -> None:
    """Writes the tables of all sizes and run.json."""
    session.log.passed("write the results")
    with session.log.stage("write tables"):
        for state in states:
            state.write(session.folder.tables)
    record, root = record_of(session, states, empty), session.folder.root
    if run_start.writes_again(session.store) and (root / run_record.RUN_FILE).is_file():
        record = with_times_of(run_record.read(root), record)
    run_record.write(root, record)


def finish(session: Session) -> int:
    """Prints the results and removes temporary files; returns the exit status."""
    show.results_table(session.log.out, session.options, session.environment, session.results)
    console = session.log.console
    for problem, why in session.results.file.kept_instead().items():
        print_line(console, f"{problem.key}: its earlier row stays in the results file: {why}")
    for line in run_summary.notes(session.log.notes):
        print_line(console, line)
    chosen, sizes = session.results.choices, len(session.options.entries)
    verified = sum(1 for choice in chosen.values() if choice.verified is not Verified.FALSE)
    say_unchecked(console, len(chosen) - verified)
    seconds = time.monotonic() - session.log.started
    print_line(console, run_summary.summary_line(verified, sizes, seconds, session.log.facts))
    say_where(session, session.results.file.merged_text())
    if session.options.updates_in_place:
        session.store.set_fact("configs_sha", configs_sha(older_configs.read(session.results.path)[0]))
    status = EXIT_OK if verified == sizes else EXIT_UNVERIFIED
    if session.options.compile_stage and session.log.facts.get("compiled under the profiler"):
        print_line(console, f"{COMPILED_LATE}: please report this", "red")
        status = EXIT_UNVERIFIED
    session.store.set_fact("exit status", status)
    session.store.set_fact("state", run_start.FINISHED)
    finished_machine.keep(session.folder.root, session.environment.machine)
    session.log.passed("print the results")
    session.folder.tidy(keep=session.options.keep)
    return status


def say_finished(session: Session) -> int:
    """Prints the results of a run that an earlier command finished as that did, without measuring."""
    console = session.log.console
    record = run_record.read(session.folder.root)
    chosen = [size for size in record.sizes if size.chosen]
    unchecked = sum(1 for size in chosen if size.unchecked)
    verified = len(chosen) - unchecked
    print_line(
        console,
        f"this run is finished: {verified} of {len(session.options.entries)} sizes have a verified configuration, "
        f"{session.environment.source} {record.header['date'][:SECONDS]}; --fresh tunes again",
    )
    recall(session, record)
    show.results_table(session.log.out, session.options, session.environment, session.results)
    for line in run_summary.notes(record.notes):
        print_line(console, line)
    say_unchecked(console, unchecked)
    say_where(session)
    if session.options.compile_stage and record.facts.get("compiled under the profiler"):
        print_line(console, COMPILED_LATE, "red")
    every_size = verified == len(session.options.entries)
    return int(session.store.fact("exit status", EXIT_OK if every_size else EXIT_UNVERIFIED))


def recall(session: Session, record: RunRecord) -> None:
    """Fills in the outcomes of a finished run, with choices as its results file has them."""
    earlier = session.results.file.earlier
    for size in record.sizes:
        row = earlier.read.get(size.problem)
        is_mine = row is not None and earlier.date_of(row) == record.header["date"]
        choice = results.choice_of(row, size.overruled) if row and is_mine else None
        if choice and choice.config.name == size.chosen:
            session.results.choices[size.problem] = choice
        else:
            session.results.failures[size.problem] = size.failure or OF_ANOTHER_RUN


def say_where(session: Session, merged: str = "") -> None:
    """Prints where the results are, and what shows them. merged: how they were merged into the results file."""
    console, folder = session.log.console, session.folder
    print_line(console, f"results: {show.place(console, session.results.path)}" + (f" ({merged})" if merged else ""))
    print_line(console, f"every configuration of every size: {show.place(console, folder.tables)}")
    run = shlex.quote(show.place(console, folder.root))
    print_line(console, f"to look at it: {program.name()} report {run}")


def say_unchecked(console: Console, count: int) -> None:
    """Prints how many configurations were chosen without a check, and why."""
    if count:
        print_line(console, f"{count} chosen without a check: {NOT_COMPARED}")


def record_of(session: Session, states: Iterable[SizeState], empty: Sequence[Cut] = ()) -> RunRecord:
    """The record of the run so far. empty: sizes of which the rules keep nothing."""
    states = list(states)
    records = {state.problem: size_record(session, state) for state in states}
    records |= {cut.problem: empty_record(cut) for cut in empty}
    problems = [entry.problem for entry in session.options.entries if entry.problem in records]
    return RunRecord(
        command=(program.name(), *sys.argv[1:]),
        seconds=round(time.monotonic() - session.log.started, 3),
        header=dataclasses.asdict(session.results.header),
        device={
            **dataclasses.asdict(session.device),
            "matmul_tflops": dict(session.device.matmul_tflops),
        },
        stages={name: round(seconds, 3) for name, seconds in session.log.stage_seconds.items()},
        facts=dict(session.log.facts),
        sizes=tuple(records[problem] for problem in dict.fromkeys((*problems, *records))),
        results_file=str(session.results.path),
        notes={**session.log.notes, "parent_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024},
        rules=tuple(row.rule for row in states[0].pruned.funnel) if states else (),
    )


def with_times_of(before: RunRecord, now: RunRecord) -> RunRecord:
    """The record of a finished run that only wrote its rows again: what it took is what it took before."""
    return dataclasses.replace(
        now, seconds=before.seconds, stages=before.stages, facts=before.facts, notes=before.notes
    )


def rule_steps(funnel: Iterable[FunnelRow]) -> Iterator[FunnelStep]:
    """The rules that rejected configurations of a size."""
    for row in funnel:
        if row.cut:
            yield FunnelStep(rule=row.rule, kind=row.kind.value, why=row.why, cut=row.cut, remain=row.remain)


def search_steps(state: SizeState) -> Iterator[FunnelStep]:
    """What was left out of the configurations that the rules keep."""
    remain, cut = len(state.kept), Counter(str(state.rows[name]["rule"]) for name in state.named(Status.PRUNED))
    for rule, count in cut.items():
        remain -= count
        yield FunnelStep(rule=rule, kind=run_record.SEARCH, why=LEFT_OUT, cut=count, remain=remain)


def size_record(session: Session, state: SizeState) -> SizeRecord:
    problem = state.problem
    choice = session.results.choices.get(problem)
    published = session.results.published.get(problem, {})
    return SizeRecord(
        problem=problem,
        total=state.total,
        funnel=(*rule_steps(state.pruned.funnel), *search_steps(state)),
        counts=state.counts(),
        roofline_us=round(workload_of(problem.kind).roofline_us(problem, session.device) or 0.0, 4),
        finals=tuple(Final(name, **dataclasses.asdict(found)) for name, found in published.items()),
        chosen=choice.config.name if choice else "",
        failure=session.results.failures.get(problem, ""),
        served=served_rows(choice.served, predicted=choice.source == "predicted").get("served", {}) if choice else {},
        overruled=dict(choice.overruled) if choice else {},
        verified=choice.verified if choice else None,
    )


def empty_record(cut: Cut) -> SizeRecord:
    """The record of a size of which the rules keep nothing."""
    total = sum(row.cut for row in cut.funnel)
    return SizeRecord(
        problem=cut.problem,
        total=total,
        funnel=tuple(rule_steps(cut.funnel)),
        counts={Status.PRUNED.value: total},
        roofline_us=0.0,
        finals=(),
        chosen="",
        failure=cut.why_empty,
    )
