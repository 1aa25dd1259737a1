"""``--compare all``: checks every timed configuration of settled sizes that no check has come to yet."""

from __future__ import annotations

from collections.abc import Sequence

from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.steps import check_candidates, only_keep
from gemm_tuner.pipeline.verify import Checker
from gemm_tuner.source.codegen import Script
from gemm_tuner.space.size_state import SizeState

ALL = "all"


def check_others(
    session: Session,
    states: Sequence[SizeState],
    checker: Checker,
    scripts: dict[tuple[str, str], Script],
    compiling: CompileStage | None,
) -> None:
    """Books what is wrong or unstable among them. No choice changes: what was chosen has been checked before."""

    order = []
    for state in states:
        known = session.store.checked(state.problem)
        names = [name for name in state.timed() if name not in known]
        if names:
            order.append((state, names))
    check_candidates(session, checker, scripts, order, only_keep, compiling)
