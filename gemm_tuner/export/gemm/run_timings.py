"""Reads the timed configurations of a size from a run's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Status
from gemm_tuner.gemm.config import CONFIG_FIELDS
from gemm_tuner.gemm.config_keys import config_of
from gemm_tuner.store.run_record import TABLES, positive, read_table
from gemm_tuner.system.documents import show

FINALS, SCREEN = "finals", "screen"
_COLUMNS = ("name", "status", "finals_us", "screen_us", *CONFIG_FIELDS)


@dataclass(frozen=True, slots=True)
class TimedConfig:
    """A configuration with status ok at a size.

    finals_us, screen_us: medians in microseconds; None if it was not in that stage. At least one of them is not None.
    samples: number of calls behind ``time_us``; 0 if unknown.
    """

    config: Config
    finals_us: float | None
    screen_us: float | None
    samples: int

    @property
    def stage(self) -> str:
        return SCREEN if self.finals_us is None else FINALS

    @property
    def time_us(self) -> float:
        """The median of the finals if it was a finalist, else of the screening."""
        time_us = self.screen_us if self.finals_us is None else self.finals_us
        assert time_us is not None
        return time_us

    def slower_than(self, other: TimedConfig) -> float:
        """By which share it is slower than ``other``, from a stage that timed both if possible, because clocks differ
        between screening and finals."""
        if self.finals_us and other.finals_us:
            return self.finals_us / other.finals_us - 1
        if self.screen_us and other.screen_us:
            return self.screen_us / other.screen_us - 1
        return self.time_us / other.time_us - 1


def read_timings(folder: Path, key: str, chosen: str) -> dict[str, TimedConfig]:
    """The configurations with status ok and a time in the table of a size, by name.

    folder: of the run. chosen: a name that the table must contain, to detect a table of another run.
    Raises UserError if there is no such table, or if it does not contain ``chosen``.
    """
    timed: dict[str, TimedConfig] = {}
    for config, row in _ok_rows(folder, key, chosen, _COLUMNS):
        finals_us, screen_us = (positive(row[f"{stage}_us"]) for stage in (FINALS, SCREEN))
        if finals_us is None and screen_us is None:
            continue
        samples = positive(row.get(f"{FINALS if finals_us is not None else SCREEN}_samples"))
        timed[config.name] = TimedConfig(config, finals_us, screen_us, int(samples or 0))
    return timed


def read_predictions(folder: Path, key: str, chosen: str) -> list[tuple[Config, float]]:
    """(configuration, predicted time in us) of those that a run without a GPU compiled for a size, fastest first.

    Raises UserError as ``read_timings`` does.
    """
    rows = _ok_rows(folder, key, chosen, ("name", "status", "predicted_us", *CONFIG_FIELDS))
    found = [(config, us) for config, row in rows if (us := positive(row["predicted_us"])) is not None]
    return sorted(found, key=lambda pair: pair[1])


def _ok_rows(folder: Path, key: str, chosen: str, columns: Sequence[str]) -> Iterator[tuple[Config, dict[str, Any]]]:
    """The rows of a size's table with status ok. Raises UserError for a table of another run."""
    table = read_table(folder, key)
    where = f"{folder / TABLES / key}.csv.gz"
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise UserError(f"has no column {missing[0]}", where=where)
    if chosen not in set(table["name"]):
        raise UserError(f"does not hold {show(chosen)}, so it is of another run", where=where)
    for row in table[table["status"] == Status.OK.value].to_dict("records"):
        config = config_of({field: _integral(row[field]) for field in CONFIG_FIELDS}, where)
        assert config is not None
        if config.name != row["name"]:
            raise UserError(f"calls {config.name} {show(row['name'])}", where=where)
        yield config, {str(column): value for column, value in row.items()}


def _integral(value: Any) -> Any:
    """A cell for ``config_of``; pandas reads integers as floats in columns with missing values."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
