"""Launches calls in sequence on one stream, and writes each to the journal."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemm_tuner.core.language import Language
from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.core.workload import Launch, launch_all
from gemm_tuner.languages.triton import proton_session
from gemm_tuner.launch.candidates import Candidate, VendorCandidate
from gemm_tuner.launch.clock import HostClock
from gemm_tuner.launch.journal import Called, Journal
from gemm_tuner.launch.plan import REST_S, TIRING_CALL_US, VENDOR, Plan
from gemm_tuner.launch.processor import Processor
from gemm_tuner.launch.stopwatch import Stopwatch

# Sweeps of flush kernels that take about 30 ms on an H200, after which kernels take as long as later on
# (benchmarks/rest.py), and those of one launch.
SPIN_UP_SWEEPS = 1000
SPUN_SWEEPS = 32
# So many further launches are timed, each by itself.
TIMED_SPINS = 4
# Before a call of several kernels, the flush keeps the GPU busy for this multiple of the time that the host needs to
# launch the call.
LAUNCH_MARGIN = 2.0
# A longer flush is not worth it: the call's kernels are then counted one by one.
MOST_FLUSH_US = 2000.0


class Bench:
    """Launches calls in sequence on one stream, each after flushing L2, and numbers them.

    stop:  a file whose existence ends the work.
    clock: times each kernel on the host, if no profiler does.
    spent: where the time of the process goes.
    """

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        stop: Path,
        language: Language,
        processor: Processor,
        clock: HostClock | None = None,
        spent: Stopwatch | None = None,
    ) -> None:
        self.method, self.journal, self.device, self.process = plan.method, journal, plan.device, plan.process
        self.processor, self.spent = processor, spent or Stopwatch()
        self._deadline = self._until = plan.deadline
        self._stop, self._clock, self._scopes = stop, clock, plan.scopes
        self._number = self._flushed = 0
        self._rested_at = 0.0  # time.perf_counter() when the clocks have recovered; 0 if they need not
        self._sweep_us = 0.0  # GPU time of one sweep of a flush; 0 if it is unknown
        self.placement = processor.placement(self.method.seed, self.process)
        self.flushes = bool(self.method.flush_bytes)
        self._support = language.support_calls(self.method.flush_bytes, self.device)

    def launch(self, launches: list[Launch]) -> None:
        """Launches the kernels of one call."""
        if self._clock is None:
            launch_all(launches)
            return
        for symbol, kernel, grid, positional, options in launches:
            self._clock.time(symbol, kernel[grid], *positional, **options)

    def launch_vendor(self, call: Callable[[], Any]) -> None:
        """Launches the vendor library's call between two marker kernels, because its kernels' names are unknown."""
        self._start_support(BEGIN_SYMBOL)
        if self._clock is None:
            call()
        else:
            self._clock.time(VENDOR, call)
        self._start_support(END_SYMBOL)

    def flush(self, sweeps: int = 1) -> None:
        """Evicts the operands from the caches, in one launch that takes as long as ``sweeps`` do."""
        self._start_support(FLUSH_SYMBOL, sweeps)
        self._flushed += 1

    def _start_support(self, symbol: str, *arguments: int) -> None:
        if self._clock is None:
            self._support[symbol](*arguments)
        else:
            self._clock.time(symbol, self._support[symbol], *arguments)

    def spin_up(self) -> None:
        """Brings an idle GPU to its working clocks before the first timed call."""
        if not self.processor.idles:
            return
        self._spin(SPIN_UP_SWEEPS)
        # The shortest, since a host that is held up makes sweeps look longer than they are.
        self._sweep_us = min(self._spin(SPUN_SWEEPS) for _ in range(TIMED_SPINS)) / SPUN_SWEEPS * 1e6

    def _spin(self, sweeps: int) -> float:
        """Keeps the GPU busy for as long as so many sweeps take, by few launches, since a profiler records each.
        Returns how long that took, in seconds."""
        launched = time.perf_counter()
        for _ in range(sweeps // SPUN_SWEEPS):
            self.flush(SPUN_SWEEPS)
        self.processor.wait()
        return time.perf_counter() - launched

    def rest(self) -> None:
        """Pauses after work that may have reached the power limit, until the clocks have recovered; then spins up. What
        the host has done since then, such as loading the next kernels, counts as pause."""
        self.processor.wait()
        if self._rested_at:
            time.sleep(max(0.0, self._rested_at - time.perf_counter()))
            self._spin(SPIN_UP_SWEEPS)

    def note_load(self, seconds: float, calls: int) -> None:
        """Records how long the calls of a round of a size's finals took, which have just ended, for the next ``rest``.
        It is to be the shortest round: a host that others keep busy makes calls look longer than they were for the GPU.
        """
        tiring = calls > 0 and seconds * 1e6 > TIRING_CALL_US * calls
        self._rested_at = time.perf_counter() + REST_S if tiring else 0.0

    @property
    def stopped(self) -> bool:
        """Whether the tuner wants this process to end after the current configuration."""
        return self._stop.exists()

    @property
    def late(self) -> bool:
        """Whether screening must end: its time is over, or the tuner wants this process to end."""
        return self.stopped or (bool(self._until) and time.time() > self._until)

    @property
    def over(self) -> bool:
        """Whether the time share of the present work is used up."""
        return 0 < self._until < time.time()

    def share_time(self, entries: int, of: int) -> None:
        """Sets the time share of the work that begins, so that later works also get theirs.

        entries: number of entries of the work. of: number of entries of this and all later works.
        """
        if self._deadline and of:
            now = time.time()
            self._until = now + (self._deadline - now) * entries / of

    def scope(self) -> Any:
        return proton_session.scope(self._number) if self._scopes else contextlib.nullcontext()

    def call(self, candidate: Candidate | VendorCandidate, *, warm: bool) -> None:
        """Makes one call of a candidate and writes it to the journal under its number."""
        candidate.prepare()
        busy_us = self._flush_before(candidate) if self.flushes and not warm else 0.0
        began = time.perf_counter()
        with self.scope():
            candidate.launch(self)
        launch_us = (time.perf_counter() - began) * 1e6
        candidate.launch_us = min(launch_us, candidate.launch_us or launch_us)
        self._journal_call(candidate, warm=warm, queued=busy_us > launch_us)

    def _flush_before(self, candidate: Candidate | VendorCandidate) -> float:
        """Flushes until the GPU is busy for longer than the host needs to launch all kernels of the call, and returns
        for how long it then is, in microseconds. The time of a call of several kernels is the span from the first start
        to the last end, which must not include waiting for the host."""
        busy_us = LAUNCH_MARGIN * candidate.launch_us if len(candidate.symbols) != 1 else 0.0
        sweeps = max(1, math.ceil(busy_us / self._sweep_us)) if self._sweep_us else 1
        sweeps = sweeps if sweeps * self._sweep_us <= MOST_FLUSH_US else 1
        self.flush(sweeps)
        return sweeps * self._sweep_us

    def timed_call_us(self, candidate: Candidate) -> float:
        """As ``call``; returns the time on the host until the call has ended, including launch overhead.

        Stream events are not used: torch's call for them (cudaEventElapsedTime_v2) is unknown to nsys before 2025,
        whose import then drops the rest of the trace (seen with nsys 2023.4 and torch 2.11).
        """
        candidate.prepare()
        if self.flushes:
            self.flush()
        self.processor.wait()
        started = time.perf_counter()
        with self.scope():
            candidate.launch(self)
        self.processor.wait()
        waited_us = (time.perf_counter() - started) * 1e6
        self._journal_call(candidate, warm=False, queued=False)
        return waited_us

    def _journal_call(self, candidate: Candidate | VendorCandidate, *, warm: bool, queued: bool) -> None:
        of = candidate.work, candidate.name, candidate.symbols
        self.journal.write(Called(self._number, *of, warm, self._flushed, queued))
        self._number, self._flushed = self._number + 1, 0
