"""Rules that hold for the kernels of some launchers only."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from gemm_tuner.core.records import Device, Problem
from gemm_tuner.moe.launcher import Launcher
from gemm_tuner.moe.launchers import of_columns
from gemm_tuner.space.rule import Predicate


def rule_of(*launchers: Launcher) -> Callable[[Predicate], Predicate]:
    """Decorator of a rule that keeps all configurations of other launchers."""

    def decorate(predicate: Predicate) -> Predicate:
        @wraps(predicate)
        def keep(c: Any, p: Problem, d: Device) -> Any:
            return of_columns(c) not in launchers or predicate(c, p, d)

        return keep

    return decorate
