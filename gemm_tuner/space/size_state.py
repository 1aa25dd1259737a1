"""The state of one size in a run: every configuration of its space, with its status and results."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.errors import FREE_SPACE, EnvironmentFault
from gemm_tuner.core.records import CompileResult, Config, Problem, Status, Timing
from gemm_tuner.core.workload import workload_of
from gemm_tuner.space.prune import Pruned
from gemm_tuner.space.reasons import most_common
from gemm_tuner.space.space import rows_equal_to, table_of, with_rows

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "status", "rule", "predicted_us", "screen_us", "screen_min_us", "screen_samples", "finals_us", "finals_min_us",
    "finals_samples", "registers", "spills", "shared_bytes", "compile_s", "message",
)  # fmt: skip
TEXT_COLUMNS = ("status", "rule", "message")
SAME_CODE_AS = "same code as "
FOUND_WRONG = (Status.WRONG, Status.UNSTABLE)


@dataclass
class SizeState:
    """The configurations of one size that the rules keep, with the results of each so far.

    configs:      the whole space, as made by ``space.frame``; sizes share it, since it may have a million rows.
    kept:         the configurations that the rules keep, by name.
    predicted_us: model time of each kept configuration, microseconds, by name; never reported as measured.
    rows:         results by name: ``status``, ``message`` and other keys of COLUMNS.
    given:        names of configurations that the user gave; heuristics do not apply to them.
    unsearched:   names of configurations that were made of what a search found, and are no candidates of it.
    outside:      how many of the kept configurations are not of the space.
    frame:        the kept configurations as rows, in their order.
    """

    problem: Problem
    configs: pd.DataFrame
    pruned: Pruned
    kept: dict[str, Config]
    predicted_us: dict[str, float]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    unsearched: set[str] = field(default_factory=set)
    outside: int = 0
    frame: pd.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        self.frame = self.configs.iloc[self.pruned.kept]  # rows first: whole columns of text take pandas 3 s to read

    @property
    def total(self) -> int:
        """How many configurations there are, with those that the rules reject."""
        return len(self.configs) + self.outside

    def record(self, name: str, status: Status, message: str = "", **numbers: Any) -> None:
        """Sets the status of a kept configuration, replacing an earlier one. numbers: values of other COLUMNS."""
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
        """Records a timing of stage ``screen`` or ``finals``. A failure in the finals sets the status, and the
        screening times stay."""
        numbers: dict[str, Any] = {}
        if timing.samples_us:
            numbers = {
                f"{stage}_us": round(median(timing.samples_us), 3),
                f"{stage}_min_us": round(min(timing.samples_us), 3),
                f"{stage}_samples": len(timing.samples_us),
            }
            if timing.kernels_us and stage == "screen":
                numbers["kernels_us"] = list(timing.kernels_us)
        self.record(timing.name, timing.status, timing.message, **numbers)

    def record_finals(self, name: str, us: float, samples_us: Sequence[float]) -> None:
        """Records the published time of a finalist and the samples that it is of, microseconds."""
        times = {"finals_us": round(us, 3), "finals_min_us": round(min(samples_us), 3)}
        self.record(name, Status.OK, "", finals_samples=len(samples_us), **times)

    def forget_screening(self, but: Collection[str]) -> None:
        """Removes all screening times except those of the names ``but``, because they are from another GPU."""
        for name, row in self.rows.items():
            if "screen_us" in row and name not in but:
                for key in [key for key in row if key.startswith("screen_") or key in ("status", "message")]:
                    del row[key]

    def copy_timing(self, timed: str, name: str) -> None:
        """Copies status and times of ``timed`` to ``name``, which has the same machine code and launch."""
        row = self.rows.get(timed, {})
        if "status" in row:
            numbers = {key: value for key, value in row.items() if key.startswith("screen_")}
            self.record(name, Status(row["status"]), f"{SAME_CODE_AS}{timed}", **numbers)

    def add(self, config: Config, predicted_us: float) -> None:
        """Adds a configuration that the user gave, even if it is not in the space or fails a rule."""
        self.given.add(config.name)
        if config.name in self.kept:
            return
        row = table_of([config])
        places = rows_equal_to(row, self.configs)
        self.outside += not places.size
        self.frame = with_rows(self.frame, self.configs.iloc[places[:1]] if places.size else row)
        self.kept[config.name] = config
        self.predicted_us[config.name] = predicted_us

    @property
    def own(self) -> dict[str, Config]:
        """The kept configurations that can win the size."""
        can_win = workload_of(self.problem.kind).can_win
        return {name: config for name, config in self.kept.items() if can_win(self.problem, config)}

    def extend(
        self, configs: pd.DataFrame, found: Sequence[Config], predicted_us: Sequence[float], *, searched: bool = True
    ) -> None:
        """Adds configurations that are not part of the space, such as those of servers' own kernels.

        configs, found: the same configurations, as rows and as records. predicted_us: their model times. searched:
        whether they are candidates of a search.
        """
        self.outside += len(configs)
        self.frame = with_rows(self.frame, configs)
        for config, us in zip(found, predicted_us, strict=True):
            self.kept[config.name] = config
            self.predicted_us[config.name] = us
        if not searched:
            self.unsearched.update(config.name for config in found)

    def ended(self, name: str) -> bool:
        """Whether a configuration has a status."""
        return "status" in self.rows.get(name, {})

    def may_run(self, name: str) -> bool:
        """Whether a configuration may be timed: it has no status yet, or it has been timed before."""
        return self.rows.get(name, {}).get("status") in (None, Status.OK.value, Status.EARLY_STOPPED.value)

    def why_not(self, name: str) -> str:
        """Status and message of a configuration that may not run; "" for one that may."""
        row = self.rows.get(name, {})
        return "" if self.may_run(name) else ": ".join(filter(None, (str(row["status"]), str(row.get("message", "")))))

    def is_compiled(self, name: str) -> bool:
        return self.has_binary(name) and not self.ended(name)

    def has_binary(self, name: str) -> bool:
        """Whether a configuration was compiled, regardless of its present status."""
        return "registers" in self.rows.get(name, {})

    def screened_us(self) -> dict[str, float]:
        """Median screening time by name, microseconds; of the calls so far for configurations that were stopped
        early."""
        return {name: row["screen_us"] for name, row in self.rows.items() if "screen_us" in row}

    def timed(self) -> list[str]:
        """Names with a screening time that may run, fastest first; one name per machine code."""
        us = {n: t for n, t in self.screened_us().items() if self.may_run(n) and not self.rows[n].get("message")}
        return sorted(us, key=lambda name: (us[name], name))

    def copy_failures(self) -> None:
        """Copies the status WRONG or UNSTABLE of a configuration to all others with the same machine code."""
        bad = {name: self.rows[name] for name in self.found_wrong()}
        for name, row in list(self.rows.items()):
            timed = str(row.get("message", "")).removeprefix(SAME_CODE_AS)
            if timed != row.get("message", "") and timed in bad:
                text = f"{SAME_CODE_AS}{timed}: {bad[timed]['message']}"
                self.record(name, Status(bad[timed]["status"]), text)

    def best_screened_us(self) -> float:
        """The smallest screening time of a configuration with status OK, microseconds; 0 without any."""
        us = self.screened_us()
        return min((us[name] for name in us if self.rows[name].get("status") == Status.OK.value), default=0.0)

    def failed(self) -> frozenset[str]:
        """The names of configurations that ended without a time."""
        return frozenset(name for name, row in self.rows.items() if "status" in row and "screen_us" not in row)

    def candidates(self) -> pd.DataFrame:
        """The kept configurations for a search: one row each, with fields and predicted_us, indexed by name. The same
        with and without ``unsearched``, so that a run that goes on asks for what it asked for before."""
        import pandas as pd  # here, because launchers are started before pandas is imported

        names = pd.Index(list(self.kept), name="name", dtype=object)  # as strings of pyarrow they are read slowly
        frame = self.frame.set_axis(names).assign(predicted_us=[self.predicted_us[name] for name in self.kept])
        if not self.unsearched:
            return frame
        others = frame.loc[~frame.index.isin(self.unsearched)]
        has_value = others.notna().any()  # else a column may be an axis of the unsearched alone
        axes = [axis for axis in self.frame.columns if has_value[axis] or axis in self.configs.columns]
        return others[[*axes, "predicted_us"]]

    def fastest(self, count: int, among: Collection[str] | None = None) -> list[str]:
        """The ``count`` fastest fully screened names, fastest first; one name per machine code.

        among: consider only these names.
        """
        whole = (name for name in self.timed() if self.rows[name].get("status") == Status.OK.value)
        return [name for name in whole if among is None or name in among][:count]

    def cut(self, names: list[str], rule: str) -> None:
        """Marks configurations that the search did not request as pruned by ``rule``."""
        for name in names:
            self.record(name, Status.PRUNED, rule=rule)

    def record_crashes(self, begun: dict[str, int], most: int) -> None:
        """Marks as crashed the configurations during which the whole run was killed ``most`` times or more.

        begun: number of times, by name.
        """
        for name, times in begun.items():
            if name in self.kept and times >= most and self.may_run(name):
                self.record(name, Status.CRASHED, f"was running {times} times when the run died")

    def named(self, status: Status) -> list[str]:
        """The names of kept configurations with this status."""
        return [name for name, row in self.rows.items() if row.get("status") == status.value]

    def found_wrong(self) -> dict[str, str]:
        """Status and message of each configuration that a check found wrong or unstable, by name."""
        return {name: self.why_not(name) for status in FOUND_WRONG for name in self.named(status)}

    def passed_over(self, order: Sequence[str], name: str) -> dict[str, str]:
        """The wrong or unstable configurations that would have been preferred to ``name``, with the reason: those
        before it in ``order`` (if it is in there), and those that were faster in the finals."""
        before = order[: order.index(name)] if name in order else ()
        us = self.rows[name].get("finals_us", 0.0)
        faster = (other for other in self.own if self.rows.get(other, {}).get("finals_us", math.inf) < us)
        return {other: self.why_not(other) for other in dict.fromkeys((*before, *faster)) if not self.may_run(other)}

    def most_common_reason(self) -> str:
        """The most frequent failure message, ignoring differences in numbers; "" without any message."""
        failed = (row for row in self.rows.values() if row.get("status") not in (Status.OK.value, None))
        messages = (str(row.get("message", "")) for row in failed)
        count, text = most_common(one for one in messages if not one.startswith(SAME_CODE_AS))
        return f"{count} of {len(self.kept)} say: {text}" if count else ""

    def counts(self) -> dict[str, int]:
        """Number of configurations by status; the sum is the size of the space."""
        counted = {Status.PRUNED.value: self.total - len(self.kept)}
        for name in self.kept:
            status = self.rows.get(name, {}).get("status", "")
            counted[status] = counted.get(status, 0) + 1
        return counted

    def assert_complete(self) -> None:
        """Raises AssertionError if a configuration has no status, which would be a bug of the tuner."""
        counted = self.counts()
        unaccounted = set(counted) - {status.value for status in Status}
        if unaccounted or sum(counted.values()) != self.total:
            raise AssertionError(f"{self.problem.key}: the statuses do not add up to the space: {counted}")

    def table(self) -> pd.DataFrame:
        """One row per configuration that the rules keep: name, fields and COLUMNS."""
        import pandas as pd  # here, because launchers are started before pandas is imported

        table = self.frame.reset_index(drop=True)
        table.insert(0, "name", list(self.kept))
        known = pd.DataFrame.from_dict(self.rows, orient="index").reindex(columns=list(COLUMNS))
        known = known.astype(dict.fromkeys(TEXT_COLUMNS, object))
        known.index.name = "name"
        table = table.join(known, on="name")
        table["predicted_us"] = table["name"].map(self.predicted_us).round(3)
        return table

    def write(self, folder: Path) -> Path:
        """Writes the table atomically as ``<problem>.csv.gz``; cells without a measurement are empty.

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


# Names of configurations for each of several sizes.
OfSize = tuple[SizeState, list[str]]
Named = list[OfSize]
