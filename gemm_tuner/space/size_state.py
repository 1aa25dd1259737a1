"""The account of one size: every configuration of the space and where it ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from gemm_tuner.core.errors import FREE_SPACE, EnvironmentFault
from gemm_tuner.core.records import CompileResult, KernelConfig, Status, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.space.prune import Pruned

COLUMNS = (
    "status", "rule", "predicted_us", "screen_us", "screen_min_us", "screen_samples", "finals_us", "finals_min_us",
    "finals_samples", "registers", "spills", "shared_bytes", "compile_s", "message",
)  # fmt: skip
TEXT_COLUMNS = ("status", "rule", "message")
SAME_CODE_AS = "same code as "
FOUND_WRONG = (Status.WRONG, Status.UNSTABLE)


@dataclass
class SizeState:
    """The configurations that the rules kept, by name, and what became of each.

    configs:      all rows of the space, as ``space.frame`` made them.
    predicted_us: the model's time of the kept ones, by name; a prediction, never a result.
    given:        names that the user gave: no heuristic drops them.
    """

    problem: GemmProblem
    configs: pd.DataFrame
    pruned: Pruned
    kept: dict[str, KernelConfig]
    predicted_us: dict[str, float]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)

    def record(self, name: str, status: Status, message: str = "", **numbers: Any) -> None:
        """Sets where a kept configuration ended; a later record overrides an earlier one."""
        row = self.rows.setdefault(name, {})
        row.update(numbers, status=status.value, message=message)

    def record_compile(self, name: str, result: CompileResult) -> None:
        self.rows.setdefault(name, {}).update(
            registers=result.registers,
            spills=result.spills,
            shared_bytes=result.shared_bytes,
            compile_s=round(result.seconds, 4),
            binary_hash=result.binary_hash,
        )
        if result.status != Status.OK:
            self.record(name, result.status, result.message)

    def record_timing(self, timing: Timing, stage: str) -> None:
        """Books a timing of stage ``screen`` or ``finals``. One that failed in the finals keeps its screening
        numbers and has the status of its failure."""
        numbers: dict[str, Any] = {}
        if timing.samples_us:
            numbers = {
                f"{stage}_us": round(median(timing.samples_us), 3),
                f"{stage}_min_us": round(min(timing.samples_us), 3),
                f"{stage}_samples": len(timing.samples_us),
            }
        self.record(timing.name, timing.status, timing.message, **numbers)

    def record_finals(self, name: str, us: float, samples_us: Sequence[float]) -> None:
        """Books the published time of a finalist, us, and the samples of the processes that it is from."""
        times = {"finals_us": round(us, 3), "finals_min_us": round(min(samples_us), 3)}
        self.record(name, Status.OK, "", finals_samples=len(samples_us), **times)

    def forget_screening(self, but: Collection[str]) -> None:
        """Forgets the screening times of all but these: another GPU than theirs took them."""
        for name, row in self.rows.items():
            if "screen_us" in row and name not in but:
                for key in [key for key in row if key.startswith("screen_") or key in ("status", "message")]:
                    del row[key]

    def copy_timing(self, twin: str, name: str) -> None:
        """Books a configuration whose code is that of another with the other's times."""
        row = self.rows.get(twin, {})
        if "status" in row:
            numbers = {key: value for key, value in row.items() if key.startswith("screen_")}
            self.record(name, Status(row["status"]), f"{SAME_CODE_AS}{twin}", **numbers)

    def add(self, config: KernelConfig, predicted_us: float) -> None:
        """Takes a configuration that the user gave among the kept ones, whether or not the space has it or the rules
        keep it."""
        self.given.add(config.name)
        if config.name in self.kept:
            return
        fields = config.to_dict()
        same = (self.configs[list(fields)] == pd.Series(fields)).all(axis=1).to_numpy()
        if not same.any():
            self.configs = pd.concat([self.configs, pd.DataFrame([fields])], ignore_index=True)
            same = np.arange(len(self.configs)) == len(self.configs) - 1
        self.pruned = replace(self.pruned, kept=np.append(self.pruned.kept, np.flatnonzero(same)[:1]))
        self.kept[config.name] = config
        self.predicted_us[config.name] = predicted_us

    @property
    def own(self) -> dict[str, KernelConfig]:
        """Those that can be a size's own configuration: all but those of servers' own kernels."""
        return {name: config for name, config in self.kept.items() if not config.is_of_a_server}

    def extend(self, configs: pd.DataFrame, found: Sequence[KernelConfig], predicted_us: Sequence[float]) -> None:
        """Takes further configurations among the kept ones: those of servers' own kernels, which are in no space.
        configs: their rows; predicted_us: the model's times."""
        places = np.arange(len(self.configs), len(self.configs) + len(configs))
        self.configs = pd.concat([self.configs, configs], ignore_index=True)
        self.pruned = replace(self.pruned, kept=np.append(self.pruned.kept, places))
        for config, us in zip(found, predicted_us, strict=True):
            self.kept[config.name] = config
            self.predicted_us[config.name] = us

    def ended(self, name: str) -> bool:
        """Whether it is known what became of a configuration."""
        return "status" in self.rows.get(name, {})

    def may_run(self, name: str) -> bool:
        """Whether nothing that is known of a configuration speaks against timing it again."""
        return self.rows.get(name, {}).get("status") in (None, Status.OK.value, Status.EARLY_STOPPED.value)

    def why_not(self, name: str) -> str:
        """What a configuration that did not run came to, in words; empty for one that may run."""
        row = self.rows.get(name, {})
        return "" if self.may_run(name) else ": ".join(filter(None, (str(row["status"]), str(row.get("message", "")))))

    def is_compiled(self, name: str) -> bool:
        return "registers" in self.rows.get(name, {}) and not self.ended(name)

    def has_binary(self, name: str) -> bool:
        """Whether a configuration is compiled, whatever came of it since."""
        return "registers" in self.rows.get(name, {})

    def screened_us(self) -> dict[str, float]:
        """Median of the screening by name, us; of those stopped early, their first calls."""
        return {name: row["screen_us"] for name, row in self.rows.items() if "screen_us" in row}

    def timed(self) -> list[str]:
        """Those with a time that nothing speaks against, fastest first; of those with the same code one."""
        us = {n: t for n, t in self.screened_us().items() if self.may_run(n) and not self.rows[n].get("message")}
        return sorted(us, key=lambda name: (us[name], name))

    def spread_failures(self) -> None:
        """Books what a check found wrong for those with the same code too."""
        bad = {name: self.rows[name] for name in self.named(Status.WRONG) + self.named(Status.UNSTABLE)}
        for name, row in list(self.rows.items()):
            twin = str(row.get("message", "")).removeprefix(SAME_CODE_AS)
            if twin != row.get("message", "") and twin in bad:
                text = f"{SAME_CODE_AS}{twin}: {bad[twin]['message']}"
                self.record(name, Status(bad[twin]["status"]), text)

    def best_screened_us(self) -> float:
        """The least time of those that were screened to the end and that nothing speaks against; 0 when there is
        none."""
        us = self.screened_us()
        return min((us[name] for name in us if self.rows[name].get("status") == Status.OK.value), default=0.0)

    def failed(self) -> frozenset[str]:
        """Those that ended without a time."""
        return frozenset(name for name, row in self.rows.items() if "status" in row and "screen_us" not in row)

    def candidates(self) -> pd.DataFrame:
        """The kept ones as a search sees them: their fields and predicted_us, by name."""
        frame = self.configs.iloc[self.pruned.kept].copy()
        frame.index = pd.Index(list(self.kept), name="name")
        frame["predicted_us"] = [self.predicted_us[name] for name in self.kept]
        return frame

    def fastest(self, count: int, among: Collection[str] | None = None) -> list[str]:
        """The names that were screened to the end and came out fastest, best first; of those with the same code one.
        among: of these only."""
        full = {
            name: row["screen_us"]
            for name, row in self.rows.items()
            if row.get("status") == Status.OK.value
            and "screen_us" in row
            and not row.get("message")
            and (among is None or name in among)
        }
        return sorted(full, key=lambda name: (full[name], name))[:count]

    def cut(self, names: list[str], rule: str) -> None:
        """Configurations that the search left out; ``rule`` says which search and how many it takes."""
        for name in names:
            self.record(name, Status.PRUNED, rule=rule)

    def blame(self, begun: dict[str, int], most: int) -> None:
        """Gives up configurations that were running, ``most`` times or more, when the whole run died."""
        for name, times in begun.items():
            if name in self.kept and times >= most and self.may_run(name):
                self.record(name, Status.CRASHED, f"was running {times} times when the run died")

    def named(self, status: Status) -> list[str]:
        """The kept configurations that ended in a status."""
        return [name for name, row in self.rows.items() if row.get("status") == status.value]

    def found_wrong(self) -> dict[str, str]:
        """The configurations that a check found wrong or unstable, each with what it said."""
        return {name: self.why_not(name) for status in FOUND_WRONG for name in self.named(status)}

    def counts(self) -> dict[str, int]:
        """How many configurations ended in each status; the sum is the space."""
        counted = {Status.PRUNED.value: len(self.configs) - len(self.kept)}
        for name in self.kept:
            status = self.rows.get(name, {}).get("status", "")
            counted[status] = counted.get(status, 0) + 1
        return counted

    def assert_complete(self) -> None:
        """Every configuration ended somewhere, exactly once. A failure is a bug of the tuner."""
        counted = self.counts()
        unaccounted = set(counted) - {status.value for status in Status}
        if unaccounted or sum(counted.values()) != len(self.configs):
            raise AssertionError(f"{self.problem.key}: the statuses do not add up to the space: {counted}")

    def table(self) -> pd.DataFrame:
        """One row a configuration that the rules kept: its fields, name and COLUMNS. The funnel counts the others."""
        table = self.configs.iloc[self.pruned.kept].copy()
        table.insert(0, "name", list(self.kept))
        table = table.reset_index(drop=True)
        known = pd.DataFrame.from_dict(self.rows, orient="index").reindex(columns=list(COLUMNS))
        known = known.astype(dict.fromkeys(TEXT_COLUMNS, object))
        known.index.name = "name"
        table = table.join(known, on="name")
        table["predicted_us"] = table["name"].map(self.predicted_us).round(3)
        return table

    def write(self, folder: Path) -> Path:
        """Writes the table as ``<problem>.csv.gz``, whole or not at all; blank cells are what was not measured.

        Raises EnvironmentFault when it cannot be written.
        """
        path = folder / f"{self.problem.key}.csv.gz"
        partial = path.with_suffix(".partial")
        try:
            self.table().to_csv(partial, index=False, compression={"method": "gzip", "compresslevel": 1})
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise EnvironmentFault(f"cannot be written: {error.strerror}", where=str(path), hint=FREE_SPACE) from error
        return path
