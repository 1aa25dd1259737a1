"""The records of the Python API: checks, calls, rows and results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plain_config import PlainConfig, Value
from gemm_tuner.core.records import Status, Verified

# Values of ``method``: timed in the caller's process by a clock of this package, or by a function of the caller.
IN_PROCESS, USER = "in_process", "user"


Config = dict[str, Any]


# What Triton says at a launch where no GPU is, and what can be done there.
NO_DRIVER = "0 active drivers"
WITHOUT_GPU = "Triton finds no GPU here: gt.par_compile compiles for one, TRITON_INTERPRET=1 runs kernels on the CPU"


class NoBestKernel(UserError, ValueError):
    """No configuration ran and was correct."""


class WrongOutput(AssertionError):
    """The outputs of a call are wrong."""


class Rejected(Exception):
    """A configuration failed in another process, so it is not run here."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Check:
    """How to check the outputs of a call.

    reference: the expected outputs, or a function without arguments that computes them once. None: configurations are
               compared with each other, and those outside of the largest group that agrees are wrong.
    rtol, atol: an element is correct within atol + rtol * |expected|; NaN is correct if NaN is expected.
    max_mismatched_ratio: share of elements that may exceed this.
    manual:    a check that replaces all of the above: takes the outputs; returns False or raises for wrong ones.
    skip:      do not check; ``verified`` is then false.
    repeats:   this many additional calls must give the same bits; otherwise the configuration is ``unstable``.
    """

    reference: Any = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.0
    manual: Callable[[Any], bool | None] | None = None
    skip: bool = False
    repeats: int = 0

    @property
    def rms(self) -> float:
        """The bound of relative RMS errors: none."""
        return float("inf")


@dataclass(frozen=True, slots=True)
class Call:
    """A configuration that is ready to run.

    run:     makes one call and returns its outputs: a tensor, an array, a number, a sequence of these, or None.
    check:   for these outputs; None for the common check.
    outputs: tensors or arrays that the call writes; they are filled with NaN before the checked call. They are checked
             if ``run`` returns None.
    before:  called before each call, outside of the timed interval, to restore what a call changes.
    kernel:  what the user gets in the end, such as a compiled kernel; None for ``run``.
    details: additional columns of its row in the table.
    """

    run: Callable[[], Any]
    check: Check | None = None
    outputs: Sequence[Any] = ()
    before: Callable[[], Any] | None = None
    kernel: Any = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def product(self) -> Any:
        return self.run if self.kernel is None else self.kernel


@dataclass(frozen=True, slots=True)
class Row:
    """A configuration and its result. Times are in microseconds, and None if it was not timed.

    name:   unique.
    us:     median time of a call; for a ``finalist``, the estimate from the publishing rounds.
    method: what timed it: in_process, user, or the profiler of finals in other processes.
    """

    config: Mapping[str, Any]
    name: str
    status: Status
    reason: str = ""
    us: float | None = None
    samples_us: tuple[float, ...] = ()
    verified: Verified = Verified.FALSE
    max_abs_error: float | None = None
    mismatched_ratio: float | None = None
    finalist: bool = False
    baseline: bool = False
    method: str = IN_PROCESS
    details: Mapping[str, Any] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        """The row as a mapping, with the configuration's values as columns."""
        return {
            "name": self.name,
            **self.config,
            **self.details,
            "status": self.status.value,
            "us": self.us,
            "samples": len(self.samples_us),
            "verified": self.verified.value,
            "max_abs_error": self.max_abs_error,
            "finalist": self.finalist,
            "baseline": self.baseline,
            "method": self.method,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Tuned:
    """The result of tuning a function.

    rows:      one per configuration and baseline: ranked ones first (best first), then the others in order.
    best:      the row of the fastest correct configuration, the simplest among those that are about as fast; or None.
    kernel:    its ``Call.product``.
    ties:      names of finalists that cannot be distinguished from the fastest, including the fastest.
    clock:     what measured the times: proton, events, host, user, or the profiler of another process.
    folder:    contains the log, the table and the results file; None if nothing was written.
    noise_pct: difference between two runs of one configuration in the finals (A/A test); None without one.
    stage_seconds: wall time of builds, of the rest of screening, and of finals.
    """

    name: str
    rows: tuple[Row, ...]
    best: Row | None
    kernel: Any
    ties: frozenset[str]
    clock: str
    seconds: float
    method: str = IN_PROCESS
    folder: Path | None = None
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    noise_pct: float | None = None

    def __str__(self) -> str:
        """A line per row, the best first: its time, status, verification, name, and the reason if it has no time."""
        return "\n".join([f"{self.name}, timed by {self.clock}, {self.method}", *map(self._line, self.rows)])

    def _line(self, row: Row) -> str:
        us = "" if row.us is None else f"{row.us:.2f} us"
        notes = [row.reason, "tie" if row.name in self.ties and len(self.ties) > 1 else ""]
        said = "; ".join(filter(None, notes))
        return f"{us:>12}  {row.status.value}, verified: {row.verified.value}  {row.name}{said and f'  ({said})'}"

    @property
    def config(self) -> dict[str, Any]:
        """The best configuration. Raises NoBestKernel."""
        return dict(self.winner.config)

    @property
    def latency_us(self) -> float:
        """The time of one call with the best configuration. Raises NoBestKernel."""
        return self.winner.us or 0.0

    @property
    def winner(self) -> Row:
        """The best row. Raises NoBestKernel, with the most common reason, if there is none."""
        if self.best is None:
            reason = self.most_common_reason
            hint = WITHOUT_GPU if NO_DRIVER in reason else ""
            raise NoBestKernel(f"No best kernel found: {reason}", where=self.name, hint=hint)
        return self.best

    @property
    def table(self) -> list[dict[str, Any]]:
        return [row.flat() for row in self.rows]

    @property
    def most_common_reason(self) -> str:
        """The most common status and reason of configurations without a time."""
        failed = [row for row in self.rows if row.status is not Status.OK and not row.baseline]
        if not failed:
            return ""
        (status, reason), count = Counter((row.status.value, row.reason) for row in failed).most_common(1)[0]
        return f"{count} of {len(failed)} are {status}: {reason}"


@dataclass(frozen=True, slots=True)
class Effort:
    """The extent of a run.

    warmup:       number of untimed calls per configuration, including the checked one.
    screen_calls: number of timed calls per configuration, to select finalists.
    finalists:    maximum number of configurations in the finals. rounds: number of rounds of the finals.
    early_stop_ratio: a configuration whose warm call takes this many times the best one's is not timed further; 0:
                      never.
    within:       a configuration slower than this times the best screened time is not a finalist.
    chunk:        number of configurations that are kept in memory with their inputs at once, besides the finalists.
    processes:    number of finals processes under a profiler.
    timeout_s:    time limit, separately for the build and the first call of a configuration; 0: none. It interrupts
                  Python code of the main thread, but not a call into C that does not return.
    """

    warmup: int = 3
    screen_calls: int = 5
    finalists: int = 8
    rounds: int = 30
    early_stop_ratio: float = 4.0
    within: float = 1.3
    chunk: int = 16
    processes: int = 3
    timeout_s: float = 0.0


def plain_config(config: Mapping[str, Any]) -> PlainConfig:
    """A configuration as a PlainConfig; values of unsupported types become text."""
    return PlainConfig("callable", tuple((str(key), _plain(value)) for key, value in config.items()))


def _plain(value: Any) -> Value:
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (tuple, list)) and all(type(one) is int for one in value):
        return tuple(value)
    return str(value)


def names_of(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A unique name for each configuration, made from its values."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    for config in configs:
        name = plain_config(config).name.removeprefix("callable_") if config else "default"
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found
