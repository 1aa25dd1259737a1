"""Steps that tuning with a GPU, tuning without one, and checking a results file have in common."""

from __future__ import annotations

from collections.abc import Iterable

from gemm_tuner.compile import compile_tasks
from gemm_tuner.core.records import Config, Problem, Verdict
from gemm_tuner.core.workload import workload_of
from gemm_tuner.gemm.descriptors import loads_by_descriptor
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.verify import Checker, OnSettled, Verification, verify_plan
from gemm_tuner.source.codegen import Script
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system import progress

# Finalists of each size whose odd-size kernels are compiled before the check; further ones compile in the check.
ODD_COMPILES_A_SIZE = 2


def write_scripts(session: Session, wanted: Iterable[tuple[Problem, Config]]) -> dict[tuple[str, str], Script]:
    settings, target = session.settings, session.environment.device.target
    kernels = settings.kernels.values()
    return compile_tasks.write_scripts(settings.templates_dir, session.folder.scripts, wanted, target, kernels)


def only_keep(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
    """For ``check_candidates`` where no size is to be settled: the store has the verdicts."""


def check_candidates(
    session: Session,
    checker: Checker,
    scripts: dict[tuple[str, str], Script],
    order: list[tuple[SizeState, list[str]]],
    on_settled: OnSettled,
    compiling: CompileStage | None,
) -> dict[Problem, list[Verdict]]:
    """Checks candidates best first; ``on_settled`` hears of each size as soon as it is known.

    compiling: what compiles the kernels of odd sizes first; None leaves that to the check.
    Returns all verdicts of each size, those on wrong candidates too. Raises KeyboardInterrupt when the run is to end.
    """
    if not order:
        return {}
    settings = session.settings
    if compiling is not None and session.environment.source == "measured":
        target = session.environment.device.target

        def companions(problem: Problem, config: Config) -> tuple[Problem, ...]:
            descriptors = loads_by_descriptor(config.family, target)
            sizes = workload_of(problem.kind).check_problems(
                problem, config.to_dict(), descriptors=descriptors, interpreted=False
            )
            return sizes[1:]

        odd = [
            (other, state.kept[name])
            for state, names in order
            for name in (names if settings.check_all_finalists else names[:ODD_COMPILES_A_SIZE])
            for other in companions(state.problem, state.kept[name])
        ]
        compiling.compile(odd, "compile for checks", session.budget.until(session.pace.check().of(len(order))))

    def script_of(state: SizeState, name: str) -> str:
        return str(scripts[state.kept[name].family, state.problem.signature].path)

    with session.gpus_held(), session.stage("check"), progress.step("check", len(order), session.console) as step:

        def settled(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
            on_settled(problem, name, verdicts)
            step.advance()

        verification = Verification(order, settled, session.store, all_of_them=settings.check_all_finalists)
        begun = session.budget.clock()
        # Only now: waiting for the GPU does not count.
        deadline = session.budget.unix_time(session.budget.until())
        plan = verify_plan(order, script_of, settings.seed, all_of_them=settings.check_all_finalists, deadline=deadline)
        checker.verdicts(plan, session.folder.stage("verify"), verification.hear)
        if session.environment.source == "measured":
            session.pace.count_check(len(order), session.budget.clock() - begun)
        session.interruption.check()  # sizes that it was not let come to are not settled: a resumed run checks them
        verification.finish()
    return {
        problem: [v for some in size.verdicts.values() for v in some] for problem, size in verification.sizes.items()
    }
