"""``run.json``: the record of what a run did, for reports, comparisons and people.

The run's folder also has tuned.yaml (the results, unless --output names another file) and configs/<size>.csv.gz (every
configuration that the rules keep, with its status and times).
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypedDict

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem, Verified
from gemm_tuner.store.results import run_folder
from gemm_tuner.store.served import served_in_run
from gemm_tuner.system.documents import show, write_text_atomically
from gemm_tuner.system.input_files import printable, read_bytes
from gemm_tuner.system.json_records import Above0, Count, Finite, Int, load_json, record_of

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION = 1
RUN_FILE = "run.json"
TABLES = "configs"
SEARCH = "search"
MAX_TABLE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Final:
    """One finalist of a size; the vendor library's name is ``torch.mm``.

    samples_us: kernel times in the processes that give its time, in order; sample i is from round i in every finalist
                of a size, unless the publishing processes contradicted its choice.
    us:         the reported time, estimated from the samples. low_us, high_us: its 95 % interval over processes; None
                for a single process. Records of earlier versions have none of these.
    processes:  number of finals processes that ran it. spread_pct: spread of its times in these, percent of the least.
    """

    name: str
    samples_us: tuple[Above0, ...]
    us: Finite | None = None
    low_us: Finite | None = None
    high_us: Finite | None = None
    processes: Count = 1
    spread_pct: Finite | None = None

    @property
    def time_us(self) -> float:
        """The reported time; for a record of an earlier version the median of the samples."""
        return median(self.samples_us) if self.us is None else self.us

    @property
    def interval_us(self) -> tuple[float, float] | None:
        return (self.low_us, self.high_us) if self.low_us and self.high_us else None


class FunnelStep(TypedDict):
    """A rule, the number of configurations that it rejected, and the number that remained. kind: that of the rule, or
    SEARCH for what no rule rejected and the search did not ask for."""

    rule: str
    kind: str
    why: str
    cut: Count
    remain: Count


@dataclass(frozen=True)
class SizeRecord:
    """One size of a run.

    total:      number of configurations in the space.
    funnel:     the rules that rejected some, in order; then what the search left out.
    counts:     number of configurations with each status; the sum is ``total``.
    roofline_us: lower bound of the time from the device's data sheet.
    chosen:     name of the chosen configuration, or "" with the reason in ``failure``.
    served:     for each server, its entry in the results file's row.
    overruled:  finalists that ranked before the chosen one and were rejected, with the reason.
    verified:   how the chosen configuration was checked; None without one.
    """

    problem: Problem
    total: Count
    funnel: tuple[FunnelStep, ...]
    counts: dict[str, Count]
    roofline_us: Finite
    finals: tuple[Final, ...] = ()
    chosen: str = ""
    failure: str = ""
    served: dict[str, Any] = field(default_factory=dict)
    overruled: dict[str, str] = field(default_factory=dict)
    verified: Verified | None = None

    @property
    def kept(self) -> int:
        """Number of configurations that no rule rejects."""
        remain = [step["remain"] for step in self.funnel if step["kind"] != SEARCH]
        return remain[-1] if remain else self.total

    @property
    def unchecked(self) -> bool:
        """Whether the chosen configuration was compared with nothing."""
        return bool(self.chosen) and self.verified is Verified.FALSE

    @property
    def key(self) -> str:
        return self.problem.key

    @property
    def winner(self) -> Final | None:
        """The chosen configuration's finals; None if it was not in the finals."""
        return next((final for final in self.finals if final.name == self.chosen and final.samples_us), None)


@dataclass(frozen=True)
class RunRecord:
    """A run.

    header: that of the results file.
    device: fields of the Device.
    stages: wall time of each stage, seconds.
    facts:  counts, such as 'kernels compiled'.
    notes:  other information about the measurement, such as the noise floor and the GPU's clocks.
    rules:  names of all rules, in the order in which they are applied.
    """

    command: tuple[str, ...]
    seconds: Finite
    header: dict[str, Any]
    device: dict[str, Any]
    stages: dict[str, Finite]
    facts: dict[str, Int]
    sizes: tuple[SizeRecord, ...]
    results_file: str
    notes: dict[str, Any] = field(default_factory=dict)
    rules: tuple[str, ...] = ()


def write(folder: Path, record: RunRecord) -> Path:
    """Writes ``run.json`` into a run's folder atomically."""
    row = dataclasses.asdict(record)
    for size, of in zip(row["sizes"], record.sizes, strict=True):
        size["problem"] = of.problem.to_dict()
    path = folder / RUN_FILE
    write_text_atomically(path, json.dumps({"format_version": FORMAT_VERSION, **row}, indent=1) + "\n")
    return path


def read(folder: Path) -> RunRecord:
    """Reads the record in a run's folder. Raises UserError if it is missing, unreadable, or of another version."""
    path = folder / RUN_FILE
    try:
        row = load_json(path, "run's record")
        if not isinstance(row, dict) or row.pop("format_version", None) != FORMAT_VERSION:
            raise UserError(f"is no record of format_version {FORMAT_VERSION}", where=printable(path))
        record = record_of(RunRecord, row, printable(path))
        for number, size in enumerate(record.sizes, 1):
            if size.served:
                served_in_run(size.served, size.problem.kind, f"{printable(path)}, sizes {number}")
    except UserError as error:
        accepted = "a run's folder under results/, which holds run.json"
        what = f"holds no run that can be read: {error.what}"
        raise UserError(what, where=error.where, accepted=error.accepted or accepted, hint=error.hint) from error
    return record


def tables_folder(results_path: str | os.PathLike[str], header: Mapping[str, str | int]) -> Path:
    """The folder configs/ with a results file's tables: next to the file, or in the run's folder that the header names,
    which may not exist any more."""
    home, run = Path(results_path).parent, run_folder(results_path, header)
    return home if run is None or ((home / TABLES).is_dir() and not (run / TABLES).is_dir()) else run


def chosen_time(size: SizeRecord, table: pd.DataFrame | None, source: str) -> tuple[float | None, str]:
    """(time of a size's chosen configuration in us, its origin: 'finals', 'screen', 'predicted', or '' for none).

    table: the size's table, used if the record has no finals. source: of the run.
    """
    if size.winner is not None:
        return size.winner.time_us, "finals"
    if table is None or not size.chosen or "name" not in table:
        return None, ""
    rows = table[table["name"] == size.chosen].to_dict("records")
    for column in ("predicted_us",) if source == "predicted" else ("finals_us", "screen_us"):
        time_us = positive(rows[0].get(column)) if rows else None
        if time_us is not None:
            return time_us, column.removesuffix("_us")
    return None, ""


def positive(cell: object) -> float | None:
    """A table cell or row value as a time; None unless it is a finite number above 0."""
    return float(cell) if isinstance(cell, (int, float)) and 0 < cell < math.inf else None


def read_table(folder: Path, key: str) -> pd.DataFrame:
    """The table of a size's configurations. Raises UserError if it is missing or cannot be read."""
    import pandas as pd  # here, because launchers are started before pandas is imported

    path = folder / TABLES / f"{key}.csv.gz"
    if Path(key).name != key:
        raise UserError(f"{show(key)} is no size's name", where=str(folder))
    try:
        packed = read_bytes(path, f"table of {key}", "CSV in gzip", MAX_TABLE_BYTES)
        with gzip.open(io.BytesIO(packed)) as stream:
            text = stream.read(MAX_TABLE_BYTES + 1)
        if len(text) > MAX_TABLE_BYTES:
            raise ValueError(f"more than {MAX_TABLE_BYTES >> 20} MiB when unpacked")
        return pd.read_csv(io.BytesIO(text), low_memory=False)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise UserError(f"has no table of {key} that can be read ({error!r})", where=str(path)) from error
