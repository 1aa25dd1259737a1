"""Steps that tuning with a GPU, tuning without one, and checking a results file have in common."""

from __future__ import annotations

from collections.abc import Iterable

from gemm_tuner import compile_stage, progress
from gemm_tuner.codegen import Script
from gemm_tuner.compile_pool import CompilePool
from gemm_tuner.descriptors import loads_by_descriptor
from gemm_tuner.kernel_env import kernel_env
from gemm_tuner.launcher.companions import odd_companion
from gemm_tuner.ledger import Ledger
from gemm_tuner.records import GemmProblem, KernelConfig, Verdict
from gemm_tuner.session import Session
from gemm_tuner.verify import Checker, OnSettled, Verification, verify_plan

# Finalists of each size whose odd-size kernels are compiled before the check; further ones compile in the check.
ODD_COMPILES_A_SIZE = 2


def write_scripts(
    session: Session, wanted: Iterable[tuple[GemmProblem, KernelConfig]]
) -> dict[tuple[str, str], Script]:
    target = session.setting.device.target
    return compile_stage.write_scripts(session.settings.templates_dir, session.folder.scripts, wanted, target)


def compile_wanted(
    session: Session,
    wanted: Iterable[tuple[GemmProblem, KernelConfig]],
    scripts: dict[tuple[str, str], Script],
    ledgers: Iterable[Ledger],
    title: str,
) -> None:
    """Compiles on every core, no GPU needed, and books the results into the ledgers."""
    settings, target = session.settings, session.setting.device.target
    tasks = compile_stage.tasks_for(wanted, scripts, target)
    if not tasks:
        return
    log = session.folder.raw / "compile.log"
    workers = min(settings.compile_workers, len(tasks) + 1)
    variables = kernel_env(session.folder.cache)
    pool = CompilePool(target, workers, variables, log, settings.compile_limit_s)
    with session.stage(title), progress.step(title, len(tasks), session.console) as step, pool:
        compiled = compile_stage.compile_all(pool, tasks, step.advance)
    session.count("kernels compiled", compiled.fresh)
    session.count("kernels found in the cache", compiled.cached)
    compile_stage.book(ledgers, compiled, scripts, session.setting.device)


def check_candidates(
    session: Session,
    checker: Checker,
    scripts: dict[tuple[str, str], Script],
    order: list[tuple[Ledger, list[str]]],
    on_settled: OnSettled,
) -> dict[GemmProblem, list[Verdict]]:
    """Checks candidates best first; ``on_settled`` hears of each size as soon as it is known.

    Returns all verdicts of each size, those on wrong candidates too.
    """
    if not order:
        return {}
    settings = session.settings
    if session.setting.source == "measured" and settings.compile_stage:
        target = session.setting.device.target

        def companion(problem: GemmProblem, config: KernelConfig) -> GemmProblem:
            return odd_companion(problem, config.to_dict(), loads_by_descriptor(config.family, target))

        odd = [
            (companion(ledger.problem, ledger.kept[name]), ledger.kept[name])
            for ledger, names in order
            for name in (names if settings.check_all_finalists else names[:ODD_COMPILES_A_SIZE])
        ]
        compile_wanted(session, odd, scripts, (), "compile for checks")

    def script_of(ledger: Ledger, name: str) -> str:
        return str(scripts[ledger.kept[name].family, ledger.problem.class_key].path)

    plan = verify_plan(order, script_of, settings.seed, all_of_them=settings.check_all_finalists)
    with session.stage("check"), progress.step("check", len(order), session.console) as step:

        def settled(problem: GemmProblem, name: str | None, verdicts: list[Verdict]) -> None:
            on_settled(problem, name, verdicts)
            step.advance()

        verification = Verification(order, settled, all_of_them=settings.check_all_finalists)
        checker.verdicts(plan, session.folder.stage("verify"), verification.hear)
        verification.finish()
    return {
        problem: [v for some in size.verdicts.values() for v in some] for problem, size in verification.sizes.items()
    }
