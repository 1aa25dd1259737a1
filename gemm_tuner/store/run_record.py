"""``run.json``: what a run did, for those who read it later: reports, comparisons, people.

Beside it in the run's folder lie tuned.yaml (the results, unless --output says otherwise)
and configs/<size>.csv.gz (every configuration that the rules kept, and what became of it).
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
from typing import Any, TypedDict

import pandas as pd

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem
from gemm_tuner.gemm.served import STAND_IN, served_of
from gemm_tuner.store.results import run_folder
from gemm_tuner.system.documents import show, write_text_atomically
from gemm_tuner.system.input_files import printable, read_bytes
from gemm_tuner.system.json_records import Above0, Count, Finite, Int, load_json, record_of

FORMAT_VERSION = 1
RUN_FILE = "run.json"
TABLES = "configs"
MAX_TABLE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Final:
    """One finalist of a size; the vendor library's name is ``torch.mm``.

    samples_us: kernel times of the processes that publish, in the order they were taken; sample i of every finalist of
                a size was taken in round i.
    us:         the time that is reported, estimated from them; low_us, high_us: its 95 % interval over processes, None
                for a single one. A record of an earlier version has none of these.
    processes:  of the finals in which it ran. spread_pct: how far its times in them lay apart, percent of the least.
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
        """The time that is reported; of an earlier version's record the median of the samples."""
        return median(self.samples_us) if self.us is None else self.us

    @property
    def interval_us(self) -> tuple[float, float] | None:
        return (self.low_us, self.high_us) if self.low_us and self.high_us else None


class FunnelStep(TypedDict):
    """A rule, and how many configurations it cut and left."""

    rule: str
    kind: str
    why: str
    cut: Count
    remain: Count


@dataclass(frozen=True)
class SizeRecord:
    """One size of a run.

    total:      configurations of the space.
    funnel:     the rules that cut some, in order.
    counts:     how many configurations ended in each status; the sum is ``total``.
    roofline_us: the least time that the device's datasheet allows.
    chosen:     name of the chosen configuration, or "" with the reason in ``failure``.
    served:     by server what the results file's row holds for it.
    overruled:  finalists that came before the chosen one and were passed over, each with the reason.
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

    @property
    def key(self) -> str:
        return self.problem.key

    @property
    def winner(self) -> Final | None:
        """The chosen configuration in the finals; None where it was in none."""
        return next((final for final in self.finals if final.name == self.chosen and final.samples_us), None)


@dataclass(frozen=True)
class RunRecord:
    """A run. ``header`` is the results file's; ``stages`` maps a stage's name to its wall seconds; ``facts``
    holds counts such as 'kernels compiled'; ``device`` the Device's fields; ``notes`` what else a reader must know,
    such as the noise floor and the GPU's clocks; ``rules`` names all rules in the order in which they are asked."""

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
    """Writes ``run.json`` into a run's folder, whole or not at all."""
    row = dataclasses.asdict(record)
    for size, of in zip(row["sizes"], record.sizes, strict=True):
        size["problem"] = of.problem.to_dict()
    path = folder / RUN_FILE
    write_text_atomically(path, json.dumps({"format_version": FORMAT_VERSION, **row}, indent=1) + "\n")
    return path


def read(folder: Path) -> RunRecord:
    """Reads a run's folder. Raises UserError when there is no run in it that can be read, or one of another version."""
    path = folder / RUN_FILE
    try:
        row = load_json(path, "run's record")
        if not isinstance(row, dict) or row.pop("format_version", None) != FORMAT_VERSION:
            raise UserError(f"is no record of format_version {FORMAT_VERSION}", where=printable(path))
        record = record_of(RunRecord, row, printable(path))
        for number, size in enumerate(record.sizes, 1):
            if size.served:
                served_of({"served": size.served, "stand_in": STAND_IN}, f"{printable(path)}, sizes {number}")
    except UserError as error:
        accepted = "a run's folder under results/, which holds run.json"
        what = f"holds no run that can be read: {error.what}"
        raise UserError(what, where=error.where, accepted=error.accepted or accepted, hint=error.hint) from error
    return record


def tables_folder(results_path: str | os.PathLike[str], header: Mapping[str, str | int]) -> Path:
    """The folder that holds a results file's tables, configs/: the file's own, or that of the run which the header
    names, which may be gone."""
    home, run = Path(results_path).parent, run_folder(results_path, header)
    return home if run is None or ((home / TABLES).is_dir() and not (run / TABLES).is_dir()) else run


def chosen_time(size: SizeRecord, table: pd.DataFrame | None, source: str) -> tuple[float | None, str]:
    """The time of a size's chosen configuration, us, and where it is from: 'finals', 'screen', 'predicted', or '' for
    none. table: of the size, which is looked at where the record holds no finals. source: the run's."""
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
    """A cell of a table or a fact of a row as a time; None unless it is a finite number above 0."""
    return float(cell) if isinstance(cell, (int, float)) and 0 < cell < math.inf else None


def read_table(folder: Path, key: str) -> pd.DataFrame:
    """The table of a size's kept configurations. Raises UserError when it is not there or cannot be read."""
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
