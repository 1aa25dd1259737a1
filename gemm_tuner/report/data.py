"""The data of a report: run.json and the tables of configurations, with derived values."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pandas as pd

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.labels import labels, legend, titled
from gemm_tuner.core.records import Problem
from gemm_tuner.core.workload import FIRST_KIND, workload_of
from gemm_tuner.decide.estimates import ratio_interval
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.report import other_rows
from gemm_tuner.report.other_rows import OtherRow
from gemm_tuner.store import run_record
from gemm_tuner.store.run_record import Final, RunRecord, SizeRecord
from gemm_tuner.store.served import served_in_run

Interval = tuple[float, float]
# Columns of measured times, in order of preference: all configurations were screened but few were in the finals, and
# the times of the two stages are not comparable.
TIME_COLUMNS = ("screen_us", "finals_us")
OUTSIDE = "outside the stages"
NOTES_IN_WORDS = {
    "noise_pct": "noise floor, %: median and most of all sizes",
    "compile_pool_idle_pct": "compile pool idle, % of the time until finals",
    "parent_peak_mib": "most memory of the tuner's own process, MiB",
    "gpu": "GPU in the finals: least, median and most",
    "updated": "older configurations",
}


@dataclass(frozen=True, slots=True)
class ReportedSize:
    """One size.

    label:       short form of the size, without the properties that all sizes of the run have in common.
    table:       one row per kept configuration; None if the run has no table for this size.
    time_us:     time of the chosen configuration.
    time_source: stage of ``time_us``: 'finals', 'screen', 'predicted', or '' without a time.
    tflops, roofline_pct: None for a predicted time. intensity: FLOP per byte.
    vendor_ratio: vendor's time divided by the tuned time. vendor_ratio_interval: its 95 % interval, from those of both.
    """

    record: SizeRecord
    label: str
    table: pd.DataFrame | None
    finalists: tuple[Final, ...]
    time_us: float | None
    time_source: str

    @property
    def key(self) -> str:
        return self.record.key

    @property
    def served(self) -> tuple[ServedChoice, ...]:
        """The configurations that the run found for servers."""
        return served_in_run(self.record.served, self.problem.kind, self.key)

    def over_best(self, one: ServedChoice) -> float | None:
        """The time of a served configuration divided by that of the winner, from the same finals."""
        return one.time_us / self.time_us if self.time_us else None

    @property
    def problem(self) -> Problem:
        return self.record.problem

    @property
    def kept(self) -> int:
        """Number of configurations that no rule rejects."""
        return self.record.kept

    @property
    def timed(self) -> int:
        """Number of configurations with a measured time."""
        return 0 if self.table is None else int(measured_us(self.table).notna().sum())

    @property
    def is_measured(self) -> bool:
        return self.time_us is not None and self.time_source != "predicted"

    @property
    def tflops(self) -> float | None:
        return self.problem.flops / self.time_us / 1e6 if self.is_measured and self.time_us else None

    @property
    def roofline_pct(self) -> float | None:
        return self.record.roofline_us / self.time_us * 100 if self.is_measured and self.time_us else None

    @property
    def intensity(self) -> float:
        return self.problem.flops / self.problem.bytes_moved

    @property
    def ours(self) -> Final | None:
        return self.record.winner

    @property
    def vendor(self) -> Final | None:
        return next((one for one in self.finalists if one.name == VENDOR), None)

    @property
    def vendor_ratio(self) -> float | None:
        return self.vendor.time_us / self.ours.time_us if self.vendor and self.ours else None

    @property
    def vendor_ratio_interval(self) -> Interval | None:
        if not (self.vendor and self.ours and self.vendor.interval_us and self.ours.interval_us):
            return None
        return ratio_interval(self.vendor.interval_us, self.ours.interval_us)


@dataclass(frozen=True, slots=True)
class Report:
    """A run.

    common:    the properties that all sizes have in common, which their labels leave out.
    roofs:     matrix rate by type, TFLOP/s, for the types of the sizes.
    dram_gbps: memory bandwidth, GB/s; 0 means unknown.
    others:    the rows of other runs in the results file by which the run was found.
    """

    record: RunRecord
    folder: str
    sizes: tuple[ReportedSize, ...]
    common: str = ""
    roofs: dict[str, float] = field(default_factory=dict)
    dram_gbps: float = 0.0
    others: tuple[OtherRow, ...] = ()

    @property
    def source(self) -> str:
        return str(self.record.header.get("source", ""))

    @property
    def title(self) -> str:
        device = self.record.header.get("device") or self.record.device.get("name") or "a device"
        return titled("GEMM tuning", self.source, str(device))

    @property
    def legend(self) -> dict[str, str]:
        """The meaning of each part of the sizes' labels."""
        return legend(size.problem for size in self.sizes)

    @property
    def config_legends(self) -> list[str]:
        """The meaning of short names of configurations, for each kind of the sizes that has such names."""
        return [text for kind in self._kinds if (text := workload_of(kind).config_legend)]

    @property
    def config_fields(self) -> list[str]:
        """Columns of tables by which configurations may be coloured; other kinds share names with the first."""
        kinds = (workload_of(kind).entries for kind in (FIRST_KIND, *self._kinds))
        return list(dict.fromkeys(name for entries in kinds if entries for name in entries.config_fields))

    @property
    def _kinds(self) -> list[str]:
        return list(dict.fromkeys(size.problem.kind for size in self.sizes))

    @property
    def notes(self) -> dict[str, Any]:
        """The record's notes, with keys written out for readers."""
        return {NOTES_IN_WORDS.get(key, key): value for key, value in self.record.notes.items()}

    @property
    def outside_stages_s(self) -> float:
        """Wall time of the run that is in no stage; 0 where stages overlap."""
        return round(max(0.0, self.record.seconds - sum(self.record.stages.values())), 3)

    @property
    def stages(self) -> dict[str, float]:
        """Wall time of each stage, and of what is in none, seconds."""
        outside = self.outside_stages_s
        return {**self.record.stages, **({OUTSIDE: outside} if outside else {})}

    @property
    def num_chosen(self) -> int:
        return sum(1 for size in self.sizes if size.record.chosen)

    @property
    def num_unchecked(self) -> int:
        return sum(1 for size in self.sizes if size.record.unchecked)

    @property
    def vendor_ratio(self) -> float | None:
        """Geometric mean of the sizes' ratios; None without any ratio."""
        ratios = [size.vendor_ratio for size in self.sizes if size.vendor_ratio]
        return geometric_mean(ratios) if ratios else None

    @property
    def counts(self) -> dict[str, int]:
        """Number of configurations of all sizes by status."""
        counted: Counter[str] = Counter()
        for size in self.sizes:
            counted.update(size.record.counts)
        return dict(counted)

    @property
    def funnel(self) -> list[dict[str, Any]]:
        """The rules with the number of configurations that they reject over all sizes, in the order of application.

        Rules whose position is not in the record are in the order of their first occurrence.
        """
        rules: dict[str, dict[str, Any]] = {}
        for row in (row for size in self.sizes for row in size.record.funnel):
            rule = rules.setdefault(str(row["rule"]), {**row, "cut": 0})
            rule["cut"] += row["cut"]
        places = {name: place for place, name in enumerate(self.record.rules)}
        ordered = sorted(rules.values(), key=lambda rule: places.get(str(rule["rule"]), len(places)))
        return [{key: rule.get(key, "") for key in ("rule", "kind", "why", "cut")} for rule in ordered]


def load(folder: Path, results_file: Path | None = None) -> Report:
    """Reads a run's folder. Tables of sizes may be missing. results_file: of which to show the rows of other runs, too.

    Raises UserError if there is no run, or if a table cannot be read.
    """
    record = run_record.read(folder)
    named = labels([size.problem for size in record.sizes])
    source = str(record.header.get("source", ""))
    sizes = tuple(_size(folder, size, named.of[size.problem], source) for size in record.sizes)
    rates = dict(record.device.get("matmul_tflops") or ())
    used = dict.fromkeys(size.problem.rate_key for size in sizes)
    return Report(
        record=record,
        folder=str(folder),
        sizes=sizes,
        common=named.common,
        roofs={key: float(rates[key]) for key in used if rates.get(key)},
        dram_gbps=float(record.device.get("dram_gbps") or 0),
        others=other_rows.of_file(results_file, {size.problem for size in sizes}) if results_file else (),
    )


def _size(folder: Path, record: SizeRecord, label: str, source: str) -> ReportedSize:
    there = (folder / run_record.TABLES / f"{record.key}.csv.gz").exists()
    table = run_record.read_table(folder, record.key) if there else None
    finalists = sorted((one for one in record.finals if one.samples_us), key=lambda one: one.time_us)
    time_us, time_source = run_record.chosen_time(record, table, source)
    return ReportedSize(record, label, table, tuple(finalists), time_us, time_source)


def measured_us(table: pd.DataFrame) -> pd.Series:
    """Each configuration's measured time, microseconds: from screening, else from the finals, else NaN."""
    found = pd.Series(math.nan, index=table.index, dtype=float)
    for column in TIME_COLUMNS:
        if column in table:
            found = found.fillna(pd.to_numeric(table[column], errors="coerce"))
    return found


def fastest(size: ReportedSize, count: int) -> list[dict[Any, Any]]:
    """The ``count`` fastest rows by ``measured_us``, or by predicted time if nothing was measured."""
    if size.table is None:
        return []
    table = size.table.assign(measured_us=measured_us(size.table))
    timed = table[table["measured_us"].notna()]
    by = "measured_us" if len(timed) else "predicted_us"
    if by not in table:
        return []
    return (timed if len(timed) else table).nsmallest(count, by).to_dict("records")
