"""The rows of a results file that are not of the run that a report is about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.core.labels import labels
from gemm_tuner.core.records import Problem, Verified
from gemm_tuner.store import results
from gemm_tuner.store.results import Results, Row
from gemm_tuner.store.run_record import positive


@dataclass(frozen=True, slots=True)
class OtherRow:
    """A row as the file has it.

    label:   short form of the size. source: of the time: measured, replayed or predicted.
    config:  its name; "" for a size without a configuration, with the reason in ``failure``.
    run:     the run that wrote the row: its folder as the file names it, else its date; "" if unknown.
    """

    problem: Problem
    label: str
    config: str = ""
    source: str = ""
    time_us: float | None = None
    verified: Verified = Verified.TRUE
    run: str = ""
    failure: str = ""

    @property
    def key(self) -> str:
        return self.problem.key


def of_file(path: Path, mine: Collection[Problem]) -> tuple[OtherRow, ...]:
    """The rows of a results file that other runs wrote: those that are kept from one, and those of sizes that are not
    in ``mine``. Raises UserError."""
    found = results.read(path)
    rows = [row for row in found.rows if "kept_from" in row.facts or row.problem not in mine]
    failures = [(problem, why) for problem, why in found.without_config if problem not in mine]
    named = labels([*(row.problem for row in rows), *(problem for problem, _ in failures)]).of
    return (
        *(_of_row(found, row, named[row.problem]) for row in rows),
        *(OtherRow(problem, named[problem], failure=why) for problem, why in failures),
    )


def _of_row(found: Results, row: Row, label: str) -> OtherRow:
    source, header = found.source_of(row), found.header_of(row)
    return OtherRow(
        problem=row.problem,
        label=label,
        config=row.config.name if row.config else "",
        source=source,
        time_us=positive(row.facts.get("predicted_us" if source == "predicted" else "median_us")),
        verified=row.verified,
        run=str(header.get("run") or header.get("date") or ""),
    )
