"""``--update``: the configurations of an older results file, which a new one must beat clearly to take their place."""

from __future__ import annotations

from collections.abc import Iterable

from gemm_tuner.core.records import KernelConfig, Status
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.ledger import Ledger


def older(session: Session, ledger: Ledger) -> KernelConfig | None:
    """The older configuration of a size, if the file given has one."""
    return session.settings.older.get(ledger.problem)


def admit(session: Session, ledgers: Iterable[Ledger]) -> None:
    """Takes the older configurations among the candidates of their sizes, whatever the rules say of them."""
    for ledger in ledgers:
        config = older(session, ledger)
        if config is not None:
            ledger.admit(config, prepare.predicted_us(ledger.problem, config, session.setting.device))


def added(session: Session, ledger: Ledger, finalists: list[str]) -> list[str]:
    """The finalists and the older configuration; one that an earlier stage has ruled out is not."""
    config = older(session, ledger)
    if config is None or config.name in finalists:
        return finalists
    return [*finalists, config.name] if ledger.may_run(config.name) else finalists


def note_chosen(session: Session, ledger: Ledger, name: str) -> None:
    """Counts whether the older configuration of a size kept its place."""
    config = older(session, ledger)
    if config is not None:
        why = ledger.why_not(config.name)
        if why:
            session.notes.setdefault("older_not_run", {})[ledger.problem.key] = why
        counts = session.notes.setdefault("updated", {"kept": 0, "replaced": 0})
        counts["kept" if config.name == name else "replaced"] += 1


def unbeaten(session: Session, ledger: Ledger) -> str:
    """Why the older configuration of a size keeps its row without a new time: it is in no trace, so that nothing beat
    it; "" where that is not so."""
    config = older(session, ledger)
    missing = config is not None and config.name in ledger.named(Status.MISSING_IN_TRACE)
    return "the older configuration was not beaten: the profiler's trace lacks it" if missing else ""


def preferred(session: Session, ledger: Ledger, order: list[str], finals: Finals) -> list[str]:
    """The order in which to choose: the older configuration before all that do not beat it clearly."""
    config = older(session, ledger)
    if config is None or config.name not in session.published.get(ledger.problem, {}):
        return order
    least = session.settings.min_improvement_pct
    others = [name for name in order if name != config.name]
    better = [name for name in others if finals.is_clearly_faster(ledger, name, config.name, least)]
    rest = [name for name in order if name not in better and name != config.name]
    return [*better, config.name, *rest]
