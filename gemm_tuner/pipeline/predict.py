"""Tunes without a GPU: the model ranks, compiled binaries are checked for limits, and the interpreter checks results.
Nothing is timed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from gemm_tuner.compile.compile_tasks import interleaved
from gemm_tuner.consumers.server import Server
from gemm_tuner.core.records import Problem, Status, Verdict, Verified
from gemm_tuner.decide import choose
from gemm_tuner.measure.launcher import HostChecker
from gemm_tuner.pipeline import predicted_candidates, serving
from gemm_tuner.pipeline.check_stage import CheckStage
from gemm_tuner.pipeline.predicted_candidates import CHECKED_A_SIZE, is_checked
from gemm_tuner.pipeline.prepare import best_predicted
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.size_state import Named, SizeState

Servers = Sequence[Server]


def run(session: Session, states: list[SizeState]) -> None:
    """Gives every size a predicted row: compiled for the target, checked on the CPU, never timed."""
    open_sizes = [state for state in states if session.store.finished(state.problem) is None]
    for state in open_sizes:
        # A check that was interrupted lacks verdicts and is run again.
        session.store.drop_checks(state.problem)
    with closing(session.executor.checker()) as checker:
        if open_sizes:
            checker.prepare()
        compile_and_check(session, states, checker)


def compile_and_check(session: Session, states: list[SizeState], checker: HostChecker) -> None:
    count = session.options.predicted_candidates
    servers = serving.servers(session.options.serve, session.device, kernels=session.options.kernels)
    of = {state.problem: predicted_candidates.of_size(session.options, servers, state) for state in states}
    scripts = session.write_scripts(interleaved([(state, of[state.problem].possible) for state in states]))
    with session.compile_stage(scripts) as compiling:
        compiling.compile_sizes([(state, of[state.problem].first) for state in states], "compile")
        few = [state for state in states if len(fitting(state, of[state.problem].best)) < CHECKED_A_SIZE]
        more = [(state, [name for name in of[state.problem].best if not state.has_binary(name)]) for state in few]
        compiling.compile_sizes(more, "compile more")
        order = []
        for state in states:
            names = fitting(state, list(state.kept))
            for name in names:
                state.record(name, Status.OK, "compiled; its time is predicted")
            state.cut([name for name in state.kept if not state.ended(name)], f"not_in_best_{count}_predicted")
            if session.store.finished(state.problem) is not None:
                restore(session, state, servers)
            elif own := [name for name in names if name in state.own and is_checked(session.options, state, name)]:
                order.append((state, own[:CHECKED_A_SIZE]))
            elif names:
                reason = f"compiled, and not checked: such kernels run on a GPU only; {names[0]} is predicted best"
                session.results.record(state.problem, None, reason)
            else:
                reasons = ["none of the candidates compiles and fits", state.most_common_reason()]
                session.results.record(state.problem, None, "; ".join(filter(None, reasons)))
        checks = session.check_stage(scripts, compiling)
        check_served(session, checks, checker, order, servers)
        check(session, checks, checker, order, servers)


def fitting(state: SizeState, names: Sequence[str]) -> list[str]:
    """Those of the names that compiled and fit, predicted best first."""
    compiled = [name for name in names if state.is_compiled(name)]
    return best_predicted(state, compiled, len(compiled))


def passed_over(session: Session, state: SizeState, name: str) -> tuple[tuple[str, str], ...]:
    """The best configuration by the model that nothing here can check, where it is ahead of the chosen one."""
    others = [one for one in predicted_us(state) if one in state.own and not is_checked(session.options, state, one)]
    if not others or state.predicted_us[others[0]] >= state.predicted_us[name]:
        return ()
    us, chosen_us = state.predicted_us[others[0]], state.predicted_us[name]
    why = f"compiled, predicted {us:.2f} us against {chosen_us:.2f} us; its kernels are checked on a GPU only"
    return ((others[0], why),)


def predicted_us(state: SizeState) -> dict[str, float]:
    """The model's times of configurations that compile and fit, fastest first, microseconds."""
    names = state.named(Status.OK)
    return {name: state.predicted_us[name] for name in best_predicted(state, names, len(names))}


def check_served(session: Session, checks: CheckStage, checker: HostChecker, order: Named, servers: Servers) -> None:
    """Checks the best configuration for each server in the interpreter, before the sizes are finished."""
    times = [(state, predicted_us(state)) for state, _ in order]
    for server in servers:
        wanted = [
            (state, names[:CHECKED_A_SIZE]) for state, names in serving.to_check(server, times, session.store.verdicts)
        ]
        checks.run(checker, wanted)


def check(session: Session, checks: CheckStage, checker: HostChecker, order: Named, servers: Servers) -> None:
    """Checks the best candidates of each size in the interpreter and finishes the size with the first correct one;
    without a check if the kernels' language has no interpreter."""
    language = session.options.language
    if language.interpreter_environment() is None:
        for state, names in order:
            reason = (
                f"compiled, and not checked: {language.name} kernels run on a GPU only; {names[0]} is predicted best"
            )
            session.results.record(state.problem, None, reason)
        return
    by_problem = {state.problem: state for state, _ in order}

    def decided(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
        why = ["none of the best candidates is right in the interpreter", by_problem[problem].most_common_reason()]
        reason = "" if name else "; ".join(filter(None, why))
        session.store.record_outcome(problem, name or "", reason)
        record_outcome(session, by_problem[problem], servers, name, verdicts, reason)

    checks.run(checker, order, decided)


def record_outcome(
    session: Session, state: SizeState, servers: Servers, name: str | None, verdicts: list[Verdict], reason: str
) -> None:
    judgement = serving.judgement(servers, state)
    if not name:
        session.results.record(state.problem, None, reason, judgement)
        return
    predicted = {other: state.predicted_us[other] for other in state.named(Status.OK) if other in state.own}
    chosen = choose.predicted_choice(state.problem, name, state.kept, predicted, verdicts, session.device)
    us, checked = predicted_us(state), session.store.verdicts
    served = serving.served_choices(servers, state, us, checked, Verified.INTERPRETED)
    chosen = replace(chosen, served=served, overruled=passed_over(session, state, name))
    session.results.record(state.problem, chosen, judgement=judgement)


def restore(session: Session, state: SizeState, servers: Servers) -> None:
    """Restores the outcome of a size that an earlier start of this run finished."""
    for name, status, message in session.store.failures(state.problem):
        state.record(name, status, message)
    name, reason = session.store.finished(state.problem) or ("", "")
    record_outcome(session, state, servers, name, session.store.verdicts(state.problem, name), reason)
