"""``--update``: the configurations of an older results file, which a new one must beat clearly to take their place."""

from __future__ import annotations

from collections.abc import Iterable

from gemm_tuner.core.records import Config, Status
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.size_state import SizeState


def older(session: Session, state: SizeState) -> Config | None:
    """The older configuration of a size, if the file given has one."""
    return session.settings.older.get(state.problem)


def add(session: Session, states: Iterable[SizeState]) -> None:
    """Takes the older configurations among the candidates of their sizes, whatever the rules say of them."""
    for state in states:
        config = older(session, state)
        if config is not None:
            state.add(config, prepare.predicted_us(state.problem, config, session.environment.device))


def added(session: Session, state: SizeState, finalists: list[str]) -> list[str]:
    """The finalists and the older configuration; one that an earlier stage has ruled out is not."""
    config = older(session, state)
    if config is None or config.name in finalists:
        return finalists
    return [*finalists, config.name] if state.may_run(config.name) else finalists


def note_chosen(session: Session, state: SizeState, name: str) -> None:
    """Counts whether the older configuration of a size kept its place."""
    config = older(session, state)
    if config is not None:
        why = state.why_not(config.name)
        if why:
            session.notes.setdefault("older_not_run", {})[state.problem.key] = why
        counts = session.notes.setdefault("updated", {"kept": 0, "replaced": 0})
        counts["kept" if config.name == name else "replaced"] += 1


def unbeaten(session: Session, state: SizeState) -> str:
    """Why the older configuration of a size keeps its row without a new time: it is in no trace, so that nothing beat
    it; "" where that is not so."""
    config = older(session, state)
    missing = config is not None and config.name in state.named(Status.MISSING_IN_TRACE)
    return "the older configuration was not beaten: the profiler's trace lacks it" if missing else ""


def preferred(session: Session, state: SizeState, order: list[str], finals: Finals) -> list[str]:
    """The order in which to choose: the older configuration before all that do not beat it clearly."""
    config = older(session, state)
    if config is None or config.name not in session.published.get(state.problem, {}):
        return order
    least = session.settings.min_improvement_pct
    others = [name for name in order if name != config.name]
    better = [name for name in others if finals.is_clearly_faster(state, name, config.name, least)]
    rest = [name for name in order if name not in better and name != config.name]
    return [*better, config.name, *rest]
