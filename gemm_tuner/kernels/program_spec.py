"""The records of a program spec: a program or command with parameters, how to build and run it, and its metric."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.system.documents import show

Value = bool | int | float | str
# The units of times, in milliseconds.
MS_IN = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
MEDIAN, LAST = SELECTS = ("median", "last")
TABLE, REGEX, JSON, CSV_COLUMN, PROFILE = "table", "regex", "json", "csv_column", "profile"
LOWER, HIGHER = "lower", "higher"
FILE, COMMAND = "file", "command"


@dataclass(frozen=True, slots=True)
class Param:
    """at_run_time: a run-time parameter (its name begins with '$' in the spec), so that all values share one build."""

    name: str
    values: tuple[Value, ...]
    at_run_time: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """Rejects combinations for which ``keep`` is false. why: the user's reason."""

    keep: Expression
    why: str = ""

    def keeps(self, values: Mapping[str, Value]) -> bool:
        """Whether the rule keeps these values. Raises UserError if the expression is undefined, such as a division by
        0."""
        try:
            return bool(self.keep.value(values))
        except UserError as error:
            given = ", ".join(f"{name}={show(values[name])}" for name in sorted(self.keep.names & values.keys()))
            raise UserError(f"{error.what} ({given})", where=error.where, hint=error.hint) from None

    def __str__(self) -> str:
        return f"{self.keep.text} ({self.why})" if self.why else self.keep.text


@dataclass(frozen=True, slots=True)
class Metric:
    """How to get the metric.

    kind:    TABLE: a table as Modular's Bench prints it. REGEX, JSON, CSV_COLUMN: ``pattern`` says where the number is.
             PROFILE: the times of the GPU kernels whose names match ``pattern``.
    unit:    of the number that the program prints; times are shown in ms.
    """

    kind: str = TABLE
    pattern: str = ""
    unit: str = "ms"
    better: str = LOWER

    @property
    def is_time(self) -> bool:
        return self.unit in MS_IN

    @property
    def title(self) -> str:
        """The column's name."""
        return f"met ({'ms' if self.is_time else self.unit})"

    @property
    def shown_unit(self) -> str:
        return "ms" if self.is_time else self.unit

    def order(self, value: float) -> float:
        """A sort key that is smaller for a better value."""
        return value if self.better == LOWER else -value


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A spec file.

    path:     the file. document: its content, used to write the best combination as a spec.
    target:   the program of ``file:`` or the line of ``command:``; ``kind`` says which.
    program:  for ``file:``, the interpreter (keys mojo and python); "" for the default.
    profiler: for PROFILE; "auto" for any installed one.
    cwd:      working folder of builds and programs.
    select:   MEDIAN, or LAST: which of several runs, or of several launches of a kernel, counts.
    best:     the metric's value, in a spec that was written as the best combination.
    """

    path: Path
    document: Mapping[str, Any]
    name: str
    kind: str
    target: str
    params: tuple[Param, ...]
    cwd: Path
    rules: tuple[Rule, ...] = ()
    program: str = ""
    shell: bool = False
    build: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0
    build_timeout_s: float = 300.0
    metric: Metric = Metric()
    profiler: str = "auto"
    repeat: int = 1
    select: str = MEDIAN
    expect_name: str = ""
    best: float | None = None

    @property
    def count(self) -> int:
        """Number of combinations, including those that rules reject."""
        return math.prod(len(param.values) for param in self.params)


@dataclass(frozen=True, slots=True)
class Instance:
    """One combination of a spec's parameters. mesh_idx: index in the product of all values, from 0. cut: the rule that
    rejects it; None if it is kept."""

    mesh_idx: int
    name: str
    values: Mapping[str, Value]
    cut: Rule | None = None


def instances(spec: ProgramSpec) -> Iterator[Instance]:
    """All combinations; the last parameter varies fastest. Raises UserError for a rule that cannot be evaluated."""
    names = [param.name for param in spec.params]
    for mesh_idx, chosen in enumerate(itertools.product(*(param.values for param in spec.params))):
        values = dict(zip(names, chosen, strict=True))
        cut = next((rule for rule in spec.rules if not rule.keeps(values)), None)
        yield Instance(mesh_idx, "/".join([spec.name, *(f"{name}={values[name]}" for name in names)]), values, cut)
