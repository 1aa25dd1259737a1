"""What a run has to offer to a consumer: for every size the best config that the consumer can launch.

A size's own config comes first. Where the consumer cannot launch it (another kernel family, a split of K), the
fastest one of the run's table that it can launch takes its place, if the table lies beside the results file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemm_tuner.errors import UserError
from gemm_tuner.records import GemmProblem, KernelConfig, Verified
from gemm_tuner.results import Results, Row
from gemm_tuner.run_record import TABLES
from gemm_tuner.run_timings import SCREEN, read_timings
from gemm_tuner.trust import Trust

RESULTS = "results"

# From a problem and one of its configs to why the consumer cannot launch it; empty when it can.
ConfigFault = Callable[[GemmProblem, KernelConfig], str]


@dataclass(frozen=True)
class Offer:
    """A config for a size.

    time_us:   its median kernel time there; None when the results file gives none.
    stage:     where that time is from: ``results``, or ``finals`` or ``screen`` of the run's table.
    verified:  compared with a reference and right. A config out of the table was timed, not compared.
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


@dataclass(frozen=True)
class LeftOut:
    """A size that was not exported, and why."""

    size: str
    config: str
    reason: str


def collect(
    found: Results,
    folder: Path,
    problem_fault: Callable[[GemmProblem], str],
    config_fault: ConfigFault,
    *,
    predicted: bool,
) -> tuple[list[Offer], list[LeftOut]]:
    """What can be exported of a results file, and what cannot.

    folder: where the run's tables are looked for, the results file's own.
    predicted: also offer rows that were never run; they keep ``source: predicted``.
    """
    offers, left_out = [], [LeftOut(p.key, "", f"has no config: {reason}") for p, reason in found.without_config]
    for row in found.rows:
        assert row.config is not None
        source = str(row.facts.get("source", found.header.get("source", "")))
        fault = problem_fault(row.problem) or _trust_fault(row, source, predicted)
        offer = None if fault else _offer(row, source, folder, config_fault)
        if isinstance(offer, Offer):
            offers.append(offer)
        else:
            left_out.append(LeftOut(row.problem.key, row.config.name, fault or str(offer)))
    return offers, left_out


def _trust_fault(row: Row, source: str, predicted: bool) -> str:
    return Trust(predicted=predicted).fault(row.verified, source)


def _offer(row: Row, source: str, folder: Path, config_fault: ConfigFault) -> Offer | str:
    """The offer for a row, or why there is none."""
    config = row.config
    assert config is not None
    time_us = row.facts.get("median_us")
    fault = config_fault(row.problem, config)
    try:
        table = _table(folder, row.problem.key, config.name)
    except UserError as error:
        if fault:
            return f"{fault}, and the run has no other config to take: {error.what}"
        table = []
    known = Offer(
        row.problem, config, time_us, RESULTS, source, verified=row.verified, tuned=config.name, tuned_us=time_us,
        facts=row.facts, timings={one.name: us for one, us, _ in table},
    )  # fmt: skip
    if not fault:
        return known
    for other, us, stage in table:
        if not config_fault(row.problem, other):
            return replace(known, config=other, time_us=us, stage=stage, verified=Verified.FALSE, facts={})
    return f"{fault}, and no config that the run timed for this size is without such a fault"


def _table(folder: Path, key: str, chosen: str) -> list[tuple[KernelConfig, float, str]]:
    """The timed configs of a size, finalists first, fastest first: config, median us, stage.

    Raises UserError when there is no such table, or it is not of the run that chose ``chosen``.
    """
    if not (folder / TABLES / f"{key}.csv.gz").exists():
        raise UserError(f"its table, {TABLES}/{key}.csv.gz, does not lie beside the results file")
    timed = read_timings(folder, key, chosen).values()
    in_order = sorted(timed, key=lambda one: (one.stage == SCREEN, one.time_us))
    return [(one.config, one.time_us, one.stage) for one in in_order]
