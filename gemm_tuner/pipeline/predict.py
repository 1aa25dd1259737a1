"""Tunes without a GPU: the model ranks, real binaries prune, the interpreter checks. Nothing is timed."""

from __future__ import annotations

from dataclasses import replace

from gemm_tuner.core.records import Status, Verdict, Verified
from gemm_tuner.decide import choose
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.measure.launcher_process import InterpreterLauncher
from gemm_tuner.pipeline import serving
from gemm_tuner.pipeline.compiling import Compiling, pairs
from gemm_tuner.pipeline.prepare import best_predicted
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.steps import check_candidates, only_keep, write_scripts
from gemm_tuner.source.codegen import Script
from gemm_tuner.space.ledger import Ledger

CHECKED_A_SIZE = 3


def run(session: Session, ledgers: list[Ledger]) -> None:
    """Settles every size with a predicted row: compiled for the target, checked on the CPU, never run."""
    count = session.settings.predicted_candidates
    for ledger in ledgers:
        if session.store.settled(ledger.problem) is None:
            # Of a check that was cut short some verdicts are missing: it is run again.
            session.store.drop_checks(ledger.problem)
    servers = servers_of(session)
    tried = {}
    for ledger in ledgers:
        best = best_predicted(ledger, list(ledger.own), count)
        tried[ledger.problem] = list(
            dict.fromkeys((*best, *serving.predicted_best(servers, ledger, list(ledger.kept))))
        )
    for ledger in ledgers:
        chosen = set(tried[ledger.problem])
        ledger.cut([name for name in ledger.kept if name not in chosen], f"not_in_best_{count}_predicted")
    wanted = [(ledger, tried[ledger.problem]) for ledger in ledgers]
    with session.stage("write scripts"):
        scripts = write_scripts(session, pairs(wanted))
    with Compiling(session, scripts) as compiling:
        compiling.ledgers(wanted, "compile")
        order = []
        for ledger, names in wanted:
            fitting = best_predicted(ledger, [n for n in names if not ledger.ended(n)], len(names))
            for name in fitting:
                ledger.record(name, Status.OK, "compiled; its time is predicted")
            if session.store.settled(ledger.problem) is not None:
                restore(session, ledger)
            elif own := [name for name in fitting if name in ledger.own]:
                order.append((ledger, own[:CHECKED_A_SIZE]))
            else:
                session.settle(ledger.problem, None, "none of the candidates compiles and fits")
        check_served(session, scripts, order, compiling)
        check(session, scripts, order, compiling)


def servers_of(session: Session) -> tuple[serving.Server, ...]:
    settings = session.settings
    return serving.servers(settings.serve, session.setting.device, kernels=settings.kernels)


def predicted_us(ledger: Ledger) -> dict[str, float]:
    """The model's times of what compiles and fits, fastest first, microseconds."""
    names = ledger.named(Status.OK)
    return {name: ledger.predicted_us[name] for name in best_predicted(ledger, names, len(names))}


def check_served(
    session: Session,
    scripts: dict[tuple[str, str], Script],
    order: list[tuple[Ledger, list[str]]],
    compiling: Compiling,
) -> None:
    """Checks the best that each server can launch in the interpreter, before the sizes are settled with it."""

    times = [(ledger, predicted_us(ledger)) for ledger, _ in order]
    for server in servers_of(session):
        wanted = [
            (ledger, names[:CHECKED_A_SIZE])
            for ledger, names in serving.to_check(server, times, session.store.verdicts)
        ]
        check_candidates(session, interpreter(session), scripts, wanted, only_keep, compiling)


def interpreter(session: Session) -> InterpreterLauncher:
    asked = session.interruption
    return InterpreterLauncher(session.folder.cache, wind_down=lambda: asked.asked)


def check(
    session: Session,
    scripts: dict[tuple[str, str], Script],
    order: list[tuple[Ledger, list[str]]],
    compiling: Compiling,
) -> None:
    """Checks the best candidates of each size in the interpreter and settles the size with the first right one."""
    by_problem = {ledger.problem: ledger for ledger, _ in order}

    def settled(problem: GemmProblem, name: str | None, verdicts: list[Verdict]) -> None:
        reason = "" if name else "none of the best candidates is right in the interpreter"
        session.store.settle(problem, name or "", reason)
        settle(session, by_problem[problem], name, verdicts, reason)

    check_candidates(session, interpreter(session), scripts, order, settled, compiling)


def settle(session: Session, ledger: Ledger, name: str | None, verdicts: list[Verdict], reason: str) -> None:
    judgement = serving.judgement(servers_of(session), ledger)
    if not name:
        session.settle(ledger.problem, None, reason, judgement)
        return
    predicted = {other: ledger.predicted_us[other] for other in ledger.named(Status.OK) if other in ledger.own}
    device = session.setting.device
    chosen = choose.predicted_choice(ledger.problem, name, ledger.kept, predicted, verdicts, device)
    served = serving.served_choices(
        servers_of(session), ledger, predicted_us(ledger), session.store.verdicts, Verified.INTERPRETED
    )
    session.settle(ledger.problem, replace(chosen, served=served), judgement=judgement)


def restore(session: Session, ledger: Ledger) -> None:
    """Settles again a size that an earlier start of this run had settled."""
    for name, status, message in session.store.failures(ledger.problem):
        ledger.record(name, status, message)
    name, reason = session.store.settled(ledger.problem) or ("", "")
    settle(session, ledger, name, session.store.verdicts(ledger.problem, name), reason)
