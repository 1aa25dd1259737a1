"""Launches calls one after another on one stream, and journals each."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from gemm_tuner.core.markers import FLUSH_SYMBOL
from gemm_tuner.languages.triton.support_kernels import FLUSH_BLOCK_SIZE, support_calls
from gemm_tuner.launch.candidates import Candidate, VendorCandidate
from gemm_tuner.launch.journal import Called, Journal
from gemm_tuner.launch.placement import Placement
from gemm_tuner.launch.plan import REST_S, TIRING_CALL_US, Method

SPIN_UP_FLUSHES = 2000


class Bench:
    """Launches calls one after another on one stream, each after emptying L2, and numbers them."""

    def __init__(
        self, method: Method, journal: Journal, scopes: bool, device: str, deadline: float, stop: Path,
        process: int = 0,
    ) -> None:  # fmt: skip
        import torch

        self.torch, self.method, self.journal, self.device = torch, method, journal, device
        self._deadline = self._until = deadline
        self._stop = stop
        self._number = self._flushed = 0
        self._scopes = scopes
        self._tired = False
        self.process = process
        self.placement = Placement(method.seed, process, device)
        self.flushes = bool(method.flush_bytes)
        blocks = max(1, method.flush_bytes // (4 * FLUSH_BLOCK_SIZE))
        buffer = torch.zeros(blocks * FLUSH_BLOCK_SIZE, dtype=torch.int32, device=device)
        sink = torch.zeros(1, dtype=torch.int32, device=device)
        self._support = support_calls(buffer, sink, blocks)

    def support(self, symbol: str) -> None:
        kernel, grid, positional = self._support[symbol]
        kernel[grid](*positional)
        self._flushed += symbol == FLUSH_SYMBOL

    def begin_recording(self) -> None:
        """Says that the profiler records from here on: flushes before are not in its trace."""
        self._flushed = 0

    def spin_up(self) -> None:
        """Brings an idle GPU to its working clocks before the first timed call."""
        for _ in range(SPIN_UP_FLUSHES):
            self.support(FLUSH_SYMBOL)
        self.torch.cuda.synchronize()

    def rest(self) -> None:
        """After work that may have reached the power limit: pauses until the clocks have recovered, then spins up."""
        self.torch.cuda.synchronize()
        if self._tired:
            time.sleep(REST_S)
            self.spin_up()

    def note_load(self, seconds: float, calls: int) -> None:
        """Takes note of how long the calls of a size's finals took, for the next ``rest``."""
        self._tired = seconds * 1e6 > TIRING_CALL_US * calls

    @property
    def stopped(self) -> bool:
        """Whether the tuner wants no more than is running."""
        return self._stop.exists()

    @property
    def late(self) -> bool:
        """Whether to screen no more: the time that it may take is over, or the tuner stops."""
        return self.stopped or (bool(self._until) and time.time() > self._until)

    @property
    def over(self) -> bool:
        """Whether the part of the time that the work may take is over."""
        return 0 < self._until < time.time()

    def share_time(self, entries: int, of: int) -> None:
        """Gives the work that begins its share of the time until the deadline, so that later works get theirs.

        entries: of the work. of: of this and all later works.
        """
        if self._deadline and of:
            now = time.time()
            self._until = now + (self._deadline - now) * entries / of

    def scope(self) -> Any:
        if not self._scopes:
            return contextlib.nullcontext()
        import triton.profiler as proton

        return proton.scope(f"L{self._number}")

    def call(self, candidate: Candidate | VendorCandidate, *, warm: bool) -> None:
        """One call of a candidate; journals it as call number n."""
        if self.flushes and not warm:
            self.support(FLUSH_SYMBOL)
        with self.scope():
            candidate.launch(self.support)
        self._journal_call(candidate, warm=warm)

    def timed_call_us(self, candidate: Candidate) -> float:
        """As ``call``, and how long the host waited for it: launch overhead and all.

        Not by stream events: what torch calls for them (cudaEventElapsedTime_v2) is unknown to nsys before
        2025, whose import then drops the rest of the trace (seen with nsys 2023.4 and torch 2.11).
        """
        if self.flushes:
            self.support(FLUSH_SYMBOL)
        self.torch.cuda.synchronize()
        started = time.perf_counter()
        with self.scope():
            candidate.launch(self.support)
        self.torch.cuda.synchronize()
        waited_us = (time.perf_counter() - started) * 1e6
        self._journal_call(candidate, warm=False)
        return waited_us

    def _journal_call(self, candidate: Candidate | VendorCandidate, *, warm: bool) -> None:
        of = candidate.work, candidate.name, candidate.symbols
        self.journal.write(Called(self._number, *of, warm, self._flushed))
        self._number, self._flushed = self._number + 1, 0
