"""NVIDIA Nsight Compute. It serializes and replays each kernel, which is slow, so it is the last choice for timing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gemm_tuner.profilers.base import (
    Dispatch,
    Profiler,
    to_frame,
    unreadable,
    written,
)
from gemm_tuner.profilers.tables import NANOSECONDS, Row, layout, normalise, read_rows
from gemm_tuner.system.documents import show

if TYPE_CHECKING:
    import pandas as pd

METRIC = "gpu__time_duration.sum"
RAW_COLUMN = normalise(METRIC)[0]
METRIC_NAMES = (METRIC, "Duration")  # as a requested metric, and as a line of the section Speed Of Light
OUTPUT = "trace.csv"
DETAILS = layout("ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value", ragged=True)
RAW = layout("ID", "Process ID", "Kernel Name", METRIC)
NO_DURATION = f"the file has no {METRIC}"
LAYOUTS = (DETAILS, RAW, layout("ID", "Kernel Name", refusal=NO_DURATION))

GROUPED = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+")
GROUPED_DECIMAL = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+\.[0-9]+")
DECIMAL = re.compile(r"[0-9]+\.[0-9]+")
POINT_OR_GROUP = re.compile(r"[1-9][0-9]{0,2}\.[0-9]{3}")


class Ncu(Profiler):
    name = "ncu"
    backends = ("cuda",)
    install_hint = "install NVIDIA Nsight Compute and put ncu on PATH"

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        """Turns off ncu's clock and cache control: by default it locks base clocks and flushes before each kernel."""
        output = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", METRIC]
        untouched = ["--clock-control", "none", "--cache-control", "none"]
        rest = ["--target-processes", "all", "--log-file", str(out_dir / OUTPUT)]
        return ["ncu", *output, *untouched, *rest, *argv]

    def read(self, out_dir: Path) -> pd.DataFrame:
        return read_file(written(out_dir / OUTPUT, "ncu did not start or was killed"))


def read_file(path: Path) -> pd.DataFrame:
    """Reads ncu's CSV, of the raw or the details page; start_ns is the launch ID."""
    return to_frame(path, dispatches(path))


class Measurement(NamedTuple):
    """One row with the duration of a launch. rank: 0 for the exact metric, 1 for its label."""

    row: Row
    launch: int
    process: int
    rank: int
    value: str
    unit: str


def dispatches(path: Path) -> Iterator[Dispatch]:
    """One dispatch per launch. Rows of the same launch must agree; the exact metric is preferred to its label."""
    launches: dict[tuple[int, int, int], tuple[int, Dispatch]] = {}
    for row, launch, process, rank, value, unit in measurements(path):
        key = (row.header.line, process, launch)
        dispatch = Dispatch(row.kernel_name("kernelname"), launch, nanoseconds(row, value, unit), process=str(process))
        known_rank, known = launches.setdefault(key, (rank, dispatch))
        if rank == known_rank and dispatch != known:
            raise row.error(f"launch {launch} is listed twice with different values")
        if rank < known_rank:
            launches[key] = (rank, dispatch)
    for _, dispatch in launches.values():
        yield dispatch


def measurements(path: Path) -> Iterator[Measurement]:
    """The rows with durations. The raw page has units in an extra row below the header, without an ID; the details page
    has them in every row.

    The two numbers at the start of every row are validated even if its metric is skipped, to detect shifted rows.
    """
    raw_units: dict[int, str] = {}
    rows = found = 0
    for row in read_rows(path, LAYOUTS):
        raw = row.header.layout is RAW
        value = row.text(RAW_COLUMN if raw else "metricvalue")
        if raw and not row.text("id"):
            raw_units[row.header.line] = value
            continue
        rows += 1
        launch, process = row.whole_number("id"), row.whole_number("processid")
        metric = METRIC if raw else row.text("metricname")
        if metric in METRIC_NAMES:
            found += 1
            unit = raw_units.get(row.header.line, "") if raw else row.text("metricunit")
            yield Measurement(row, launch, process, METRIC_NAMES.index(metric), value, unit)
    if rows and not found:
        raise unreadable(path, None, NO_DURATION)


def nanoseconds(row: Row, value: str, unit: str) -> float:
    """Parses a duration; refuses a number whose separator may be a decimal point or a thousands separator.

    ncu prints 239008 ns as 239,008 in an English locale and as 239.008 in a German one. Both pages print no decimals,
    two, or (raw page, scaled units) six. So three digits after a comma are a thousands group if the unit is ns. Three
    digits after a single point are ambiguous and refused, and so is every comma used as a decimal point.
    """
    scale = NANOSECONDS.get(unit)
    if scale is None:
        raise row.error(f"the unit {show(unit)} of {METRIC} is not known", accepted="ns, us, ms, s")
    certain = GROUPED_DECIMAL.fullmatch(value) or (DECIMAL.fullmatch(value) and not POINT_OR_GROUP.fullmatch(value))
    if value.isascii() and (value.isdigit() or certain or (scale == 1 and GROUPED.fullmatch(value))):
        return float(Decimal(value.replace(",", "")) * scale)
    what = f"the duration {show(value)} {unit} is not a number"
    if POINT_OR_GROUP.fullmatch(value) or "," in value or value.count(".") > 1:
        what = f"the duration {show(value)} {unit} may have been written under another locale"
    raise row.error(what, accepted="digits, as in 239008", hint="run ncu with LC_ALL=C and --print-units base")
