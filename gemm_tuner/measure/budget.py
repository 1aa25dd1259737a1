"""The time budget of a run (``--budget``), and the time that profiler starts and checks take on this machine.

A budget is wall time from the start of the command; a resumed run has a new one. Waiting for a GPU that another process
holds does not count; ``--wait`` limits that.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.system.conversion import decoded
from gemm_tuner.system.documents import write_text_atomically

# A file in the folder of compiled kernels, which all runs on this machine share.
COSTS_FILE = "costs.json"
REMEMBERED = 8
COMPILES = "first kernels"
# Share of a budget that is reserved for finals and checks.
FINALS_SHARE = 0.3
# Share of a profiler start's fixed time that is after its last kernel, for writing and converting the report.
REPORT_SHARE = 0.5
# A check may begin so much of a budget too late, since a run without its check has no result; one that is running is
# ended LATE_CHECK_S after that. Runs of 10 s and more end at most LATE_SHARE of their budget too late.
LATE_CHECKS_SHARE, LATE_CHECK_S, LATE_SHARE = 0.1, 2.0, 0.2


@dataclass(frozen=True, slots=True)
class Cost:
    """A linear cost in seconds: of a start, and of each item in it (a call of a kernel, or the check of a size)."""

    start_s: float
    each_s: float

    def of(self, count: float) -> float:
        return self.start_s + self.each_s * count


# Used until this machine has its own measurements. nsys, proton and checks: as on an H200 (nsys 2023.4: 11 s per start,
# of which torch 3 s and the report 5 s). ncu serializes and saves each kernel. Others are assumed to be like nsys.
FIRST_GUESS = {"nsys": Cost(11.0, 0.0005), "proton": Cost(6.0, 0.0003), "ncu": Cost(15.0, 0.02)}
LIKE_NSYS = FIRST_GUESS["nsys"]
CHECK_GUESS = Cost(6.0, 0.5)
# Time for the compile workers to start, and to compile one kernel per size.
COMPILE_GUESS = Cost(4.0, 0.3)


@dataclass
class Costs:
    """The measured cost of starts on this machine, by kind of start.

    path:   file that keeps them for later runs; None for none.
    points: (items, seconds) of the latest starts of each kind.
    """

    path: Path | None = None
    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self.points = decoded(self.path.read_bytes(), dict[str, list[tuple[float, float]]])

    def add(self, kind: str, count: float, seconds: float) -> None:
        self.points[kind] = [*self.points.get(kind, []), (float(count), seconds)][-REMEMBERED:]
        if self.path is not None:
            with contextlib.suppress(OSError, EnvironmentFault):  # later runs then use the guess
                write_text_atomically(self.path, json.dumps(self.points) + "\n")

    def cost(self, kind: str, guess: Cost) -> Cost:
        """A linear fit of the measurements; the cost per item remains the guess until the counts differ enough."""
        points = self.points.get(kind, [])
        if not points:
            return guess
        counts, seconds = zip(*points, strict=True)
        whole_s = [s / n for n, s in points if n]  # as if the start itself took no time
        if max(counts) > 2 * min(counts) + 1:
            each_s = min([max(0.0, statistics.linear_regression(counts, seconds).slope), *whole_s])
        else:
            each_s = min([guess.each_s, *(s / 2 for s in whole_s)])
        return Cost(statistics.median(s - each_s * n for n, s in points), each_s)


@dataclass
class Budget:
    """The time budget of a run. Times (``began``, ``until``) are those of ``clock``.

    total_s:  0 means no limit.
    waited_s: time spent waiting for GPUs, which does not count.
    at_floor: it was extended to the expected time of one profiler start and one check.
    """

    total_s: float = 0.0
    began: float = field(default_factory=time.monotonic)
    clock: Callable[[], float] = time.monotonic
    waited_s: float = 0.0
    at_floor: bool = False

    @property
    def bounded(self) -> bool:
        return self.total_s > 0

    def left_s(self) -> float:
        """Seconds left; infinite without a limit, negative when it is over."""
        return self.until() - self.clock()

    def until(self, reserve_s: float = 0.0) -> float:
        """The time when the run must end, minus ``reserve_s``."""
        return self.began + self.total_s + self.waited_s - reserve_s if self.bounded else float("inf")

    def has_time_for(self, seconds: float) -> bool:
        return seconds <= self.left_s()

    def unix_time(self, until: float) -> float:
        """A time of the clock as Unix time, for other processes; 0.0 (no deadline) for an infinite one."""
        return time.time() + until - self.clock() if until != float("inf") else 0.0

    def raise_to(self, floor_s: float) -> bool:
        """Extends the budget if less than ``floor_s`` is left; returns whether it did."""
        short = self.bounded and self.left_s() < floor_s - 1e-6  # rounding
        if short:
            self.total_s += floor_s - self.left_s()
            self.at_floor = True
        return short


@dataclass(frozen=True)
class Pace:
    """Plans a run within its budget, from the measured costs of starts.

    profiler: its name. about: its version and the GPU. measured: whether profilers are used at all.
    """

    budget: Budget
    costs: Costs
    profiler: str
    about: str
    measured: bool

    @property
    def _started(self) -> str:
        return f"{self.profiler} {self.about}"

    @property
    def _checked(self) -> str:
        return f"check {self.about if self.measured else 'in the interpreter'}"

    def start(self) -> Cost:
        """The cost of a profiler start and of each call in it; 0 if no profiler is used."""
        guess = FIRST_GUESS.get(self.profiler, LIKE_NSYS)
        return self.costs.cost(self._started, guess) if self.measured else Cost(0.0, 0.0)

    def start_up_s(self) -> float:
        """The time of a profiler start before its first kernel."""
        return (1 - REPORT_SHARE) * self.start().start_s

    def check(self) -> Cost:
        """The cost of a checking process and of each size in it."""
        return self.costs.cost(self._checked, CHECK_GUESS)

    def compile(self) -> Cost:
        """The cost of starting the compile workers and of compiling the first kernel of each size."""
        return self.costs.cost(COMPILES, COMPILE_GUESS)

    def count_compiles(self, sizes: int, seconds: float) -> None:
        self.costs.add(COMPILES, sizes, seconds)

    def count_start(self, calls: int, seconds: float) -> None:
        if self.measured and calls:
            self.costs.add(self._started, calls, seconds)

    def count_check(self, sizes: int, seconds: float) -> None:
        self.costs.add(self._checked, sizes, seconds)

    def floor_s(self, sizes: int) -> float:
        """The expected time of the first compilations, one profiler start and one check."""
        return self.compile().of(sizes) + self.start().start_s + self.check().of(sizes)

    def screen_until(self, sizes: int) -> float:
        """The time when the last profiler start of screening must have ended."""
        return self.budget.until(max(FINALS_SHARE * self.budget.total_s, self.floor_s(sizes)))

    def has_time_to_screen(self, sizes: int) -> bool:
        return self.budget.clock() + self.start().start_s <= self.screen_until(sizes)

    def screen_deadline_until(self, sizes: int) -> float:
        """The time when the last kernel of screening must have been launched."""
        return self.screen_until(sizes) - REPORT_SHARE * self.start().start_s

    def check_deadline(self) -> float:
        """The Unix time after which no check begins; 0.0 for none. A budget ``at_floor`` has none, so that the single
        check is made even if the profiler start took longer than expected."""
        late_s = max(0.0, min(LATE_CHECKS_SHARE * self.budget.total_s, LATE_SHARE * self.budget.total_s - LATE_CHECK_S))
        return 0.0 if self.budget.at_floor else self.budget.unix_time(self.budget.until(-late_s))

    def finals_reserve_s(self, sizes: int) -> float:
        """The time needed after the last kernel of finals, for the report and the checks."""
        return REPORT_SHARE * self.start().start_s + self.check().of(sizes)

    def lengthened(self, sizes: int) -> str:
        """Extends a budget that is too small for one profiler start and one check. Returns a message, or "" if it is
        large enough."""
        asked_s = self.budget.total_s
        if not self.measured or not self.budget.raise_to(self.floor_s(sizes)):
            return ""
        how = "measured on this machine" if self.costs.points.get(self._started) else "a first guess"
        return (
            f"--budget: {asked_s:.0f} s is too short: the first compiles ({self.compile().of(sizes):.0f} s), a "
            f"profiler start ({self.start().start_s:.0f} s) and a check ({self.check().of(sizes):.0f} s), {how}, end "
            f"after {self.budget.total_s:.0f} s, and so does this run"
        )
