"""``run.json``: what a run did, for those who read it later: reports, comparisons, people.

Beside it in the run's folder lie tuned.yaml (the results, unless --tuning_results_file says otherwise)
and configs/<size>.csv.gz (every configuration that the rules kept, and what became of it).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from gemm_tuner.documents import write_text_atomically
from gemm_tuner.errors import UserError
from gemm_tuner.problem import GemmProblem

FORMAT_VERSION = 1
RUN_FILE = "run.json"
TABLES = "configs"


@dataclass(frozen=True)
class Final:
    """One contender of a size's finals; the vendor library's name is ``torch.mm``.

    samples_us: kernel times in the order they were taken; sample i of every contender of a size was taken in round i.
    """

    name: str
    samples_us: tuple[float, ...]


@dataclass(frozen=True)
class SizeRecord:
    """One size of a run.

    total:      configurations of the space.
    funnel:     the rules that cut some, in order: {"rule", "kind", "why", "cut", "remain"}.
    counts:     how many configurations ended in each status; the sum is ``total``.
    roofline_us: the least time that the device's datasheet allows.
    chosen:     name of the chosen configuration, or "" with the reason in ``failure``.
    """

    problem: GemmProblem
    total: int
    funnel: tuple[dict[str, Any], ...]
    counts: dict[str, int]
    roofline_us: float
    finals: tuple[Final, ...] = ()
    chosen: str = ""
    failure: str = ""

    @property
    def key(self) -> str:
        return self.problem.key


@dataclass(frozen=True)
class RunRecord:
    """A run. ``header`` is the results file's; ``stages`` maps a stage's name to its wall seconds; ``facts``
    holds counts such as 'kernels compiled'; ``device`` the Device's fields; ``notes`` what else a reader must know,
    such as the noise floor and the GPU's clocks."""

    command: tuple[str, ...]
    seconds: float
    header: dict[str, Any]
    device: dict[str, Any]
    stages: dict[str, float]
    facts: dict[str, int]
    sizes: tuple[SizeRecord, ...]
    results_file: str
    notes: dict[str, Any] = field(default_factory=dict)


def write(folder: Path, record: RunRecord) -> Path:
    """Writes ``run.json`` into a run's folder, whole or not at all."""
    row = dataclasses.asdict(record)
    for size, of in zip(row["sizes"], record.sizes, strict=True):
        size["problem"] = of.problem.to_dict()
    path = folder / RUN_FILE
    write_text_atomically(path, json.dumps({"format_version": FORMAT_VERSION, **row}, indent=1) + "\n")
    return path


def read(folder: Path) -> RunRecord:
    """Reads a run's folder. Raises UserError when there is no run in it, or one of another version."""
    path = folder / RUN_FILE
    accepted = "a run's folder under results/, which holds run.json"
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        if row.pop("format_version") != FORMAT_VERSION:
            raise ValueError("another format_version")
        sizes = tuple(_size(size) for size in row.pop("sizes"))
        command = tuple(row.pop("command"))
        return RunRecord(command=command, sizes=sizes, **row)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"holds no run that can be read ({error!r})", where=str(folder), accepted=accepted) from error


def _size(row: dict[str, Any]) -> SizeRecord:
    finals = tuple(Final(f["name"], tuple(f["samples_us"])) for f in row.pop("finals"))
    problem = GemmProblem.from_dict(row.pop("problem"))
    return SizeRecord(problem=problem, finals=finals, funnel=tuple(row.pop("funnel")), **row)


def read_table(folder: Path, key: str) -> pd.DataFrame:
    """The table of a size's kept configurations. Raises UserError when it is not there."""
    path = folder / TABLES / f"{key}.csv.gz"
    try:
        return pd.read_csv(path, low_memory=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"has no table of {key} that can be read ({error!r})", where=str(path)) from error
