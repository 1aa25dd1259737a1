"""What a row of a results file has beside its winner: what is served to consumers, and a substitute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemm_tuner.consumers.consumer import Offer
from gemm_tuner.core.choice import ServedChoice, Substitute
from gemm_tuner.core.records import Verified
from gemm_tuner.export.gemm.rows import gemm_of, tile_of
from gemm_tuner.export.gemm.run_timings import FINALS
from gemm_tuner.gemm.config import KernelConfig, tile
from gemm_tuner.store.results import Row

SERVED = "served"


def served_for(row: Row, source: str, consumer: str) -> Offer | None:
    """The configuration that tuning with --serve found for this consumer; None without one."""
    for one in row.served:
        if one.consumer == consumer:
            return _offer(row, one, SERVED, source, {} if one.default_us is None else {"default_us": one.default_us})
    return None


def checked_beside(row: Row, source: str, can_launch: Callable[[KernelConfig], bool]) -> Offer | None:
    """The fastest configuration that a row has besides its winner: its substitute, or what is served to some consumer.

    Only those that were timed, and checked on a GPU, in this package's kernel of their family; those of the row's own
    finals before those that it keeps from an earlier run's. None if there is none.

    source: of the row's time. can_launch: whether the consumer can launch a configuration.
    """
    if source != "measured":
        return None
    others: list[tuple[bool, ServedChoice | Substitute]]
    others = [(bool(one.kept_from), one) for one in row.served if not one.kernel]
    others += [(False, one) for one in [row.substitute] if one is not None]
    for _, one in sorted(others, key=lambda other: (other[0], other[1].time_us)):
        if one.verified is Verified.TRUE and can_launch(tile(one.config)):
            return _offer(row, one, FINALS, source, {})
    return None


def _offer(row: Row, one: ServedChoice | Substitute, stage: str, source: str, facts: dict[str, Any]) -> Offer:
    time_us = None if source == "predicted" else one.time_us
    return Offer(
        gemm_of(row), tile(one.config), time_us, stage, source, verified=one.verified, tuned=tile_of(row).name,
        tuned_us=row.facts.get("median_us"), facts=facts, timings={} if time_us is None else {one.config.name: time_us},
    )  # fmt: skip
