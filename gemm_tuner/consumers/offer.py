"""A config that can be exported for a size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem


@dataclass(frozen=True)
class Offer:
    """A config for a size, with its times.

    time_us:   median kernel time at this size; None when the results file gives none.
    stage:     source of that time: ``results``, or ``finals`` or ``screen`` of the run's table.
    tuned, tuned_us: name and time of the size's own config, which this one stands in for when it is another.
    timings:   time by config name of all that the run's table timed for this size.
    """

    problem: GemmProblem
    config: KernelConfig
    time_us: float | None
    stage: str
    source: str
    verified: Verified
    tuned: str
    tuned_us: float | None
    facts: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
