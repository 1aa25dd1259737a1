"""What the tuner of live functions is given, and what it returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plain_config import PlainConfig, Value
from gemm_tuner.core.records import Status, Verified

# Of results: timed in the caller's process by one of our clocks; by a function of the caller's.
IN_PROCESS, USER = "in_process", "user"


Config = dict[str, Any]


class NoBestKernel(UserError, ValueError):
    """No configuration ran and was right."""


class WrongOutput(AssertionError):
    """What a call gave is not right."""


class Rejected(Exception):
    """A configuration that failed elsewhere, and is not run here."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Check:
    """When the outputs of a call are right.

    reference: the expected outputs, or a function of no arguments that computes them once. None: configurations are
               compared with each other, and those outside the largest group that agrees are wrong.
    rtol, atol: an element is right within atol + rtol * |expected|; NaN is right where NaN is expected.
    max_mismatched_ratio: the share of elements that may lie outside.
    manual:    gets the outputs in the place of all that; returns False, or raises, for wrong ones.
    skip:      nothing is checked: ``verified`` is false.
    repeats:   so many further calls must give the same bits as the one that is checked, else it is ``unstable``.
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
        """Relative RMS errors have no bound here."""
        return float("inf")


@dataclass(frozen=True, slots=True)
class Call:
    """A configuration that is ready to run.

    run:     makes one call and returns its outputs: a tensor, an array, a number, a sequence of these, or None.
    check:   of these outputs; None takes that of all configurations.
    outputs: tensors or arrays that the call writes; NaN is written to them before the call that is checked. They are
             what is checked where ``run`` returns None.
    before:  runs before each call and outside of its time: restores what a call changes.
    kernel:  what the user wants in the end, such as a compiled kernel; None is ``run``.
    details: columns of its row in the table, such as values derived from the configuration.
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
    """A configuration and what came of it. Times are in microseconds and None where it was not timed.

    name:       of the configuration; unique.
    us:         median of a call; where ``finalist``, the estimate of the rounds that did not choose.
    method:     who timed it: in_process, user, or the profiler of finals in other processes.
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
        """The row for a table: the configuration's values among its columns."""
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
    """The outcome of tuning live functions.

    rows:      one for each configuration and baseline: the ranked ones first, best first, then the others in order.
    best:      the row of the fastest right configuration, the simplest of those that are about as fast; None for none.
    kernel:    what ``build`` gave for it: Call.product.
    ties:      names of finalists that these rounds do not tell from the fastest, the fastest included.
    clock:     what took the times: proton, events, host, user, or a profiler of another process.
    folder:    holds the log, the table and the results file; None where nothing was written.
    noise_pct: how far two runs of one configuration lay apart in the same finals; None where none ran twice.
    stage_seconds: wall time of builds, of what else screening does, and of finals.
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

    @property
    def config(self) -> dict[str, Any]:
        """Raises NoBestKernel."""
        return dict(self.winner.config)

    @property
    def latency_us(self) -> float:
        """Of one call. Raises NoBestKernel."""
        return self.winner.us or 0.0

    @property
    def winner(self) -> Row:
        """The best row. Raises NoBestKernel, with the commonest reason, where there is none."""
        if self.best is None:
            raise NoBestKernel(f"No best kernel found: {self.most_common_reason}", where=self.name)
        return self.best

    @property
    def table(self) -> list[dict[str, Any]]:
        return [row.flat() for row in self.rows]

    @property
    def most_common_reason(self) -> str:
        """Why configurations have no time: the status and the reason that most share."""
        failed = [row for row in self.rows if row.status is not Status.OK and not row.baseline]
        if not failed:
            return ""
        (status, reason), count = Counter((row.status.value, row.reason) for row in failed).most_common(1)[0]
        return f"{count} of {len(failed)} are {status}: {reason}"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run.

    warmup:       untimed calls of each configuration, the checked one among them.
    screen_calls: timed calls of each configuration, to select finalists.
    finalists:    most configurations in the finals. rounds: of these.
    early_stop_ratio: a configuration whose warm call takes so many times the best's is not timed further; 0 times all.
    within:       of the best screened time; what is slower than that has no finals.
    chunk:        configurations that are held, with their inputs, at once, beside the finalists.
    processes:    of finals under a profiler.
    timeout_s:    of the build and of the first call of a configuration, each; 0 is no limit. It interrupts Python code
                  of the main thread, not a call into C that does not return.
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
    """A configuration as a record of the project: values that are none of its types as text."""
    return PlainConfig("callable", tuple((str(key), _plain(value)) for key, value in config.items()))


def _plain(value: Any) -> Value:
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (tuple, list)) and all(type(one) is int for one in value):
        return tuple(value)
    return str(value)


def names_of(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A unique name for each configuration, made of its values."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    for config in configs:
        name = plain_config(config).name.removeprefix("callable_") if config else "default"
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found
