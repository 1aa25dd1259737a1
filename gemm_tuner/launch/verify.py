"""Checks the entries of a plan: against the reference, or with each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from gemm_tuner.core.judges import Jury
from gemm_tuner.core.records import Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.launch.examiners import Examiners
from gemm_tuner.launch.failures import report_failure, report_uncompared
from gemm_tuner.launch.journal import Begin, End, Journal, Judged, Ran
from gemm_tuner.launch.plan import Plan, Work
from gemm_tuner.launch.processor import processor_of


def verify(
    plan: Plan,
    journal: Journal,
    scripts: list[ModuleType],
    stop: Path,
    *,
    interpreted: bool,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Checks the entries of each work, best first, at the tuned size and at companion sizes; at small sizes in the
    interpreter. Entries of problems without a reference are all run, and then compared with each other.

    between: called after each work.
    """

    def over() -> bool:
        return stop.exists() or plan.is_over()

    for index, work in enumerate(plan.work):
        workload = workload_of(work.problem.kind)
        together = workload.compares_configs(work.problem)
        (compare_entries if together else check_entries)(plan, journal, scripts, index, over, interpreted)
        if over():
            return
        between()


def check_entries(
    plan: Plan, journal: Journal, scripts: list[ModuleType], index: int, over: Callable[[], bool], interpreted: bool
) -> None:
    """Compares the entries of a work with the reference; stops at the first correct one if the plan says so."""
    work = plan.work[index]
    several = len(work.entries) > 1 and not plan.stop_at_first_right
    examiners = Examiners(workload_of(work.problem.kind), plan.method.seed, plan.device, several=several)
    for script, name in work.entries:
        if over():
            return
        journal.write(Begin(index, name))
        right = True
        try:
            for problem in sizes_of_check(work, scripts[script], name, interpreted):
                verdict = examiners.verdict(problem, scripts[script], name)
                journal.write(Judged.of(index, verdict))
                right = right and verdict.ok
        except Exception as error:
            report_failure(journal, index, name, error)
            right = False
        journal.write(End(index, name))
        if right and plan.stop_at_first_right:
            break


def compare_entries(
    plan: Plan, journal: Journal, scripts: list[ModuleType], index: int, over: Callable[[], bool], interpreted: bool
) -> None:
    """Compares the entries of a work with each other. The journal gets their end events only after all have run, so
    that they run again after a crash; the one that was running caused it, and none that has run."""
    work = plan.work[index]
    workload, juries = workload_of(work.problem.kind), dict[Problem, Jury]()
    heard: list[str] = []
    for script, name in work.entries:
        if over():
            return
        journal.write(Begin(index, name))
        try:
            for problem in sizes_of_check(work, scripts[script], name, interpreted):
                if problem not in juries:
                    juries[problem] = workload.jury(problem, plan.method.seed, plan.device)
                juries[problem].hear(scripts[script], name)
            heard.append(name)
            journal.write(Ran(index, name))
        except Exception as error:
            report_failure(journal, index, name, error)
            journal.write(End(index, name))
    try:
        verdicts = [jury.verdicts() for jury in juries.values()]
    except Exception as error:  # would happen again in another process
        report_uncompared(journal, index, heard, error)
        return
    for name in heard:
        for of_size in verdicts:
            journal.write(Judged.of(index, of_size[name]))
        journal.write(End(index, name))


def sizes_of_check(work: Work, script: ModuleType, name: str, interpreted: bool) -> tuple[Problem, ...]:
    check_problems = workload_of(work.problem.kind).check_problems
    config, descriptors = script.CONFIGS[name], script.DESCRIPTORS
    return check_problems(work.problem, config, descriptors=descriptors, interpreted=interpreted)


def prepare(plan: Plan) -> None:
    """Opens the processor, and loads what the first check of each problem of a plan that has no entries needs besides
    kernels."""
    processor_of(plan.device).wait()
    for work in (work for work in plan.work if not work.entries):
        workload_of(work.problem.kind).prepare_check(work.problem, plan.device)
