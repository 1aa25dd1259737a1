"""Reads one side of a comparison: a results file or a run's folder."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gemm_tuner.core.records import Problem
from gemm_tuner.decide import estimates
from gemm_tuner.decide.finals_plan import publishing_of
from gemm_tuner.store import results, run_place, run_record
from gemm_tuner.store.run_record import RunRecord, SizeRecord, positive

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Timed:
    """The configuration of a size and its time. Times are of one call, in microseconds.

    config:     its name.
    p20_us, p80_us: of the samples; None if the file does not have them.
    interval_us: 95 % confidence interval over processes; None for a single process or if the file does not have it.
    """

    config: str
    source: str
    median_us: float | None
    p20_us: float | None = None
    p80_us: float | None = None
    interval_us: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison. header: of the results file or run. failures: sizes without a configuration, with the
    reason. served: the configurations for consumers, by size and consumer."""

    header: dict[str, str | int]
    sizes: dict[Problem, Timed]
    failures: dict[Problem, str] = field(default_factory=dict)
    served: dict[tuple[Problem, str], Timed] = field(default_factory=dict)


def load(path: Path) -> Side:
    """Reads a side from a results file or a run's folder. Raises UserError if it is neither."""
    if path.is_dir():
        return _of_run(path, run_record.read(run_place.run_folder(path)))
    found = results.read(path)
    factors = _factors(
        (row.problem, row.facts.get("processes"), row.facts.get("process_spread_pct")) for row in found.rows
    )
    sizes: dict[Problem, Timed] = {}
    for row in found.rows:
        assert row.config is not None
        facts = row.facts
        source = found.source_of(row)
        time_us = positive(facts.get("predicted_us" if source == "predicted" else "median_us"))
        quantiles = (positive(facts.get("p20_us")), positive(facts.get("p80_us")))
        interval_us = _interval_us(time_us, factors.get(row.problem))
        sizes[row.problem] = Timed(row.config.name, source, time_us, *quantiles, interval_us)
    return Side(found.header, sizes, dict(found.without_config), _served(found))


def _served(found: results.Results) -> dict[tuple[Problem, str], Timed]:
    all_served = [(row, one) for row in found.rows for one in row.served]
    factors = _factors(((row.problem, one.consumer), one.processes, one.process_spread_pct) for row, one in all_served)
    made: dict[tuple[Problem, str], Timed] = {}
    for row, one in all_served:
        key = (row.problem, one.consumer)
        interval_us = _interval_us(one.time_us, factors.get(key))
        made[key] = Timed(one.config.name, found.source_of(row), one.time_us, interval_us=interval_us)
    return made


def _interval_us(time_us: float | None, factor: float | None) -> tuple[float, float] | None:
    return (time_us / factor, time_us * factor) if time_us and factor else None


def _of_run(path: Path, record: RunRecord) -> Side:
    header = {key: value for key, value in record.header.items() if isinstance(value, (str, int))}
    source = str(header.get("source", ""))
    chosen = {size.problem: _chosen(path, size, source) for size in record.sizes if size.chosen}
    failures = {size.problem: size.failure for size in record.sizes if not size.chosen}
    found = run_place.results_of_run(path)
    return Side(header, chosen, failures, _served(found) if found else {})


def _chosen(path: Path, size: SizeRecord, source: str) -> Timed:
    """The chosen configuration with its time; quantiles and interval only if it was in the finals."""
    ours = size.winner
    if ours is not None:
        return Timed(size.chosen, source, ours.time_us, *estimates.quantiles_us(ours.samples_us), ours.interval_us)
    time_us, _ = run_record.chosen_time(size, run_record.read_table(path, size.key), source)
    return Timed(size.chosen, source, time_us)


def _factors(spread_pcts: Iterable[tuple[_Key, int | None, float | None]]) -> dict[_Key, float]:
    """For each key, the factor f such that [time / f, time * f] is the 95 % interval over processes.

    The variance over processes is moderated by that of all rows (``estimates.moderated``). Keys without a spread are
    missing. spread_pcts: (key, ``processes``, ``process_spread_pct``) of each row.
    """
    spreads = {}
    for key, processes, range_pct in spread_pcts:
        if processes is not None and processes > 1 and range_pct is not None:
            spreads[key] = (estimates.spread_of_range(range_pct, processes), publishing_of(processes))
    common = estimates.common_spread([one for one, _ in spreads.values()])
    most = sum(one.degrees for one, _ in spreads.values())
    return {
        key: estimates.interval_factor(estimates.moderated(own, common, most), publishing)
        for key, (own, publishing) in spreads.items()
    }
