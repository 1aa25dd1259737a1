"""``--compare all``: checks every timed configuration of settled sizes that no check has come to yet."""

from __future__ import annotations

from collections.abc import Sequence

from gemm_tuner.pipeline.check_stage import CheckStage, only_store
from gemm_tuner.pipeline.verify import Checker
from gemm_tuner.space.size_state import SizeState

ALL = "all"


def check_others(check: CheckStage, checker: Checker, states: Sequence[SizeState]) -> None:
    """Records what is wrong or unstable among them. No choice changes: what was chosen has been checked before."""
    order = []
    for state in states:
        known = check.store.checked(state.problem)
        names = [name for name in state.timed() if name not in known]
        if names:
            order.append((state, names))
    check.run(checker, order, only_store)
