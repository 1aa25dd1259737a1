"""How long a run may take (``--budget``), and what profiler starts and checks take on this machine.

A budget is wall time from the start of the command; a run that goes on has its own. Waiting for a GPU that another
process holds does not count: ``--wait`` bounds that.
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
from gemm_tuner.system.documents import write_text_atomically

# In the folder of compiled kernels, which all runs of this machine share.
COSTS_FILE = "costs.json"
REMEMBERED = 8
COMPILES = "first kernels"
# Of a budget, at least, what finals and checks may need.
FINALS_SHARE = 0.3
# Of a profiler start, what comes after its last kernel: the report is written and converted.
REPORT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one start, and of each thing that it does: a call of a kernel, or the check of a size."""

    start_s: float
    each_s: float

    def of(self, count: float) -> float:
        return self.start_s + self.each_s * count


# Until this machine has measured its own. nsys, proton and checks as on an H200 (nsys 2023.4: 11 s a start, of which
# torch 3 s and the report 5 s); ncu serialises and saves each kernel. The others are taken to be like nsys.
FIRST_GUESS = {"nsys": Cost(11.0, 0.0005), "proton": Cost(6.0, 0.0003), "ncu": Cost(15.0, 0.02)}
LIKE_NSYS = FIRST_GUESS["nsys"]
CHECK_GUESS = Cost(6.0, 0.5)
# For the compile workers to start, and to compile one kernel of each size.
COMPILE_GUESS = Cost(4.0, 0.3)


@dataclass
class Costs:
    """What starts took on this machine, by what was started. ``path`` keeps it for later runs; None keeps nothing.

    points: (things done, seconds) of the latest starts of each kind.
    """

    path: Path | None = None
    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self.points = msgspec.json.decode(self.path.read_bytes(), type=dict[str, list[tuple[float, float]]])

    def add(self, kind: str, count: float, seconds: float) -> None:
        self.points[kind] = [*self.points.get(kind, []), (float(count), seconds)][-REMEMBERED:]
        if self.path is not None:
            with contextlib.suppress(OSError, EnvironmentFault):  # later runs then begin with the guess
                write_text_atomically(self.path, json.dumps(self.points) + "\n")

    def cost(self, kind: str, guess: Cost) -> Cost:
        """A line through what was measured; what each thing takes stays the guess until counts differ enough."""
        points = self.points.get(kind, [])
        if not points:
            return guess
        counts, seconds = zip(*points, strict=True)
        whole_s = [s / n for n, s in points if n]  # as if the start itself were free
        if max(counts) > 2 * min(counts) + 1:
            each_s = min([max(0.0, statistics.linear_regression(counts, seconds).slope), *whole_s])
        else:
            each_s = min([guess.each_s, *(s / 2 for s in whole_s)])
        return Cost(statistics.median(s - each_s * n for n, s in points), each_s)


@dataclass
class Budget:
    """total_s: 0 is no bound. began and the answers of ``until`` are times of ``clock``.

    at_floor: it was lengthened to what one profiler start and one check are expected to take.
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
        """Seconds; infinite without a bound, below 0 when it is over."""
        return self.until() - self.clock()

    def until(self, reserve_s: float = 0.0) -> float:
        """When the run must end, less what is kept for what comes later."""
        return self.began + self.total_s + self.waited_s - reserve_s if self.bounded else float("inf")

    def has_time_for(self, seconds: float) -> bool:
        return seconds <= self.left_s()

    def unix_time(self, until: float) -> float:
        """A time of the clock as Unix time, for other processes; 0.0, which is none, for an infinite one."""
        return time.time() + until - self.clock() if until != float("inf") else 0.0

    def raise_to(self, floor_s: float) -> bool:
        """Lengthens a budget below ``floor_s``, counted from now; whether it did."""
        short = self.bounded and self.left_s() < floor_s - 1e-6  # rounding
        if short:
            self.total_s += floor_s - self.left_s()
            self.at_floor = True
        return short


@dataclass(frozen=True)
class Pace:
    """What a run's budget leaves time for, by what starts take.

    profiler, about: its name; its version and the GPU. measured: whether profilers are started at all.
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
        """Of a profiler start, and each of its calls; nothing where none is started."""
        guess = FIRST_GUESS.get(self.profiler, LIKE_NSYS)
        return self.costs.cost(self._started, guess) if self.measured else Cost(0.0, 0.0)

    def start_up_s(self) -> float:
        """Of a profiler start, what comes before its first kernel."""
        return (1 - REPORT_SHARE) * self.start().start_s

    def check(self) -> Cost:
        """Of a process that checks, and each of its sizes."""
        return self.costs.cost(self._checked, CHECK_GUESS)

    def compile(self) -> Cost:
        """Of the first kernel of each size, and of each size."""
        return self.costs.cost(COMPILES, COMPILE_GUESS)

    def count_compiles(self, sizes: int, seconds: float) -> None:
        self.costs.add(COMPILES, sizes, seconds)

    def count_start(self, calls: int, seconds: float) -> None:
        if self.measured and calls:
            self.costs.add(self._started, calls, seconds)

    def count_check(self, sizes: int, seconds: float) -> None:
        self.costs.add(self._checked, sizes, seconds)

    def floor_s(self, sizes: int) -> float:
        """The first compiles, one profiler start and one check."""
        return self.compile().of(sizes) + self.start().start_s + self.check().of(sizes)

    def screen_until(self, sizes: int) -> float:
        """When the last profiler start of screening must have ended."""
        return self.budget.until(max(FINALS_SHARE * self.budget.total_s, self.floor_s(sizes)))

    def has_time_to_screen(self, sizes: int) -> bool:
        return self.budget.clock() + self.start().start_s <= self.screen_until(sizes)

    def screen_deadline_until(self, sizes: int) -> float:
        """When the last kernel of screening must have been launched."""
        return self.screen_until(sizes) - REPORT_SHARE * self.start().start_s

    def check_deadline(self) -> float:
        """When the last check must have begun, as Unix time; 0.0 for no deadline. At the floor there is none: the one
        check is what the run is for, also where a start took longer than this machine's records say."""
        return 0.0 if self.budget.at_floor else self.budget.unix_time(self.budget.until())

    def finals_reserve_s(self, sizes: int) -> float:
        """What is left after the last kernel of finals: its report and the check."""
        return REPORT_SHARE * self.start().start_s + self.check().of(sizes)

    def lengthened(self, sizes: int) -> str:
        """Raises a budget that is less than one profiler start and one check take; says so, "" where it is enough."""
        asked_s = self.budget.total_s
        if not self.measured or not self.budget.raise_to(self.floor_s(sizes)):
            return ""
        how = "measured on this machine" if self.costs.points.get(self._started) else "a first guess"
        return (
            f"--budget: {asked_s:.0f} s is too short: the first compiles ({self.compile().of(sizes):.0f} s), a "
            f"profiler start ({self.start().start_s:.0f} s) and a check ({self.check().of(sizes):.0f} s), {how}, end "
            f"after {self.budget.total_s:.0f} s, and so does this run"
        )
