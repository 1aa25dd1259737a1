"""Reads all timed configurations of a run, from its folder or from a results file with its tables."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.export.gemm.rows import gemm_of, tile_of
from gemm_tuner.export.gemm.run_timings import TimedConfig, read_timings
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.store import results, run_place, run_record
from gemm_tuner.store.results import Header
from gemm_tuner.store.run_record import RUN_FILE
from gemm_tuner.store.size_rows import SOURCES
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable

ROUNDING = 1e-9  # tolerance of a ratio, so that 101 us counts as 1 % slower than 100 us


@dataclass(frozen=True, slots=True)
class TunedSize:
    """A size, its chosen configuration, and all timed configurations by name, including ``chosen``.

    roofline_us: lower bound of the time from the device's data sheet, microseconds; None if unknown.
    served:      the configurations for servers in the results file.
    verified:    how the chosen configuration was checked; runs on a GPU choose only configurations checked there.
    """

    problem: GemmProblem
    chosen: str
    timed: dict[str, TimedConfig]
    roofline_us: float | None
    served: tuple[ServedChoice, ...] = ()
    verified: Verified = Verified.TRUE

    @property
    def best_us(self) -> float:
        """The time of the chosen configuration, microseconds; the base of losses."""
        return self.timed[self.chosen].time_us

    def loss(self, name: str) -> float:
        """Share by which a configuration is slower than the chosen one; negative if its screening was faster."""
        return self.timed[name].slower_than(self.timed[self.chosen])

    def is_served_by(self, name: str, loss: float) -> bool:
        """Whether a configuration was timed for this size and is slower by at most ``loss``."""
        return name in self.timed and self.loss(name) <= loss + ROUNDING


@dataclass(frozen=True, slots=True)
class TunedRun:
    """A run. folder: of the tables. failures: (size without a configuration, reason)."""

    header: dict[str, str | int]
    sizes: tuple[TunedSize, ...]
    failures: tuple[tuple[GemmProblem, str], ...]
    folder: Path


def load(path: Path) -> TunedRun:
    """Reads a run from its folder or a results file. Raises UserError without tables, or if nothing was timed."""
    run = _of_folder(path) if path.is_dir() else _of_file(path)
    if not run.sizes:
        raise UserError("holds no size with a config", where=printable(path))
    return run


def _of_folder(folder: Path) -> TunedRun:
    record = run_record.read(run_place.run_folder(folder))
    found = run_place.results_of_run(folder)
    served = {gemm_of(row): row.served for row in found.rows} if found else {}
    header = _header(record.header, printable(folder / RUN_FILE))
    sizes = [
        replace(
            _size(folder, as_gemm(size.problem), size.chosen, size.roofline_us if size.roofline_us > 0 else None),
            served=served.get(as_gemm(size.problem), ()),
        )
        for size in record.sizes
        if size.chosen
    ]
    return TunedRun(
        header, tuple(sizes), tuple((as_gemm(s.problem), s.failure) for s in record.sizes if not s.chosen), folder
    )


def _header(raw: dict[str, Any], where: str) -> dict[str, str | int]:
    """The fields of a run's header that a results file's header also has. Raises UserError for an unknown source."""
    if raw.get("source") not in SOURCES:
        raise UserError(f"source is {show(raw.get('source'))}", where=where, accepted=", ".join(SOURCES))
    kinds = {field.name: int if field.type == "Count" else str for field in dataclasses.fields(Header)}
    return {key: raw[key] for key, kind in kinds.items() if type(raw.get(key)) is kind}


def _of_file(path: Path) -> TunedRun:
    found = results.read(path)
    gone = tuple((as_gemm(problem), why) for problem, why in found.without_config)
    folder = run_record.tables_folder(path, found.header)
    sizes = []
    for row in found.rows:
        assert row.config is not None
        time_us, share = row.facts.get("median_us"), row.facts.get("roofline_pct")
        roofline_us = share / 100 * time_us if time_us and share else None
        tables = run_record.tables_folder(path, found.header_of(row))
        size = _size(tables, gemm_of(row), tile_of(row).name, roofline_us)
        sizes.append(replace(size, served=row.served, verified=row.verified))
    return TunedRun(found.header, tuple(sizes), gone, folder)


def _size(folder: Path, problem: GemmProblem, chosen: str, roofline_us: float | None) -> TunedSize:
    """The size with its times. Raises UserError if its table is missing or has no time for the chosen configuration."""
    hint = f"give a run's folder, with {RUN_FILE} and configs/, or the results file in it"
    try:
        timed = read_timings(folder, problem.key, chosen)
    except UserError as error:
        raise UserError(error.what, where=error.where, hint=hint) from error
    if chosen not in timed:
        what = f"nothing was measured for {problem.key}: {chosen} has no time"
        raise UserError(what, where=printable(folder), hint="tune it on a GPU: ranges of M need measured times")
    return TunedSize(problem, chosen, timed, roofline_us)
