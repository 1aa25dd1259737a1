"""Tunes without a GPU: the model ranks, real binaries prune, the interpreter checks. Nothing is timed."""

from __future__ import annotations

from gemm_tuner import choose, compile_stage
from gemm_tuner.launch import InterpreterLauncher
from gemm_tuner.ledger import Ledger
from gemm_tuner.prepare import best_predicted
from gemm_tuner.records import GemmProblem, Status, Verdict
from gemm_tuner.session import Session
from gemm_tuner.steps import check_candidates, compile_wanted, write_scripts

CHECKED_A_SIZE = 3


def run(session: Session, ledgers: list[Ledger]) -> None:
    """Settles every size with a predicted row: compiled for the target, checked on the CPU, never run."""
    count = session.settings.predicted_candidates
    tried = {ledger.problem: best_predicted(ledger, list(ledger.kept), count) for ledger in ledgers}
    for ledger in ledgers:
        chosen = set(tried[ledger.problem])
        ledger.cut([name for name in ledger.kept if name not in chosen], f"not_in_best_{count}_predicted")
    wanted = [(ledger.problem, ledger.kept[name]) for ledger in ledgers for name in tried[ledger.problem]]
    with session.stage("write scripts"):
        scripts = write_scripts(session, wanted)
    if not session.settings.compile_stage:
        session.console.print("--no_warmup changes nothing without a GPU: what is predicted must be known to compile")
    compile_wanted(session, wanted, scripts, ledgers, "compile")

    order = []
    for ledger in ledgers:
        fitting = best_predicted(ledger, compile_stage.runnable(ledger), count)
        for name in fitting:
            ledger.record(name, Status.OK, "compiled; its time is predicted")
        if fitting:
            order.append((ledger, fitting[:CHECKED_A_SIZE]))
        else:
            session.settle(ledger.problem, None, "none of the candidates compiles and fits")

    def settled(problem: GemmProblem, name: str | None, verdicts: list[Verdict]) -> None:
        if name is None:
            session.settle(problem, None, "none of the best candidates is right in the interpreter")
            return
        ledger = next(one for one, _ in order if one.problem == problem)
        predicted = {other: ledger.predicted_us[other] for other in ledger.named(Status.OK)}
        device = session.setting.device
        session.settle(problem, choose.predicted_choice(problem, name, ledger.kept, predicted, verdicts, device))

    check_candidates(session, InterpreterLauncher(session.folder.cache), scripts, order, settled)
