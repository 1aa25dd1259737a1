"""Launches configurations so that a profiler outside can time them.

No time that ends up in a result is taken here. The host's clock is read only to drop clear losers early.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.core.records import Status
from gemm_tuner.core.workload import Launch, workload_of
from gemm_tuner.languages.triton.scratch import ScratchPool, count_sms
from gemm_tuner.languages.triton.scripts import launch_all
from gemm_tuner.languages.triton.support_kernels import FLUSH_BLOCK_SIZE, support_calls
from gemm_tuner.launch.journal import Begin, Called, End, Fail, Journal, Round
from gemm_tuner.launch.placement import Placement
from gemm_tuner.launch.plan import AA_TEST, REST_S, TIRING_CALL_US, VENDOR, Method, Work

# A call within this much of the best is never called a loser: the host's clock reads overhead too.
EARLY_STOP_SLACK_US = 100.0
SPIN_UP_FLUSHES = 2000
# Of finals whose time is over.
LEAST_ROUNDS = 5


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
            candidate.launch(self)
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
            candidate.launch(self)
        self.torch.cuda.synchronize()
        waited_us = (time.perf_counter() - started) * 1e6
        self._journal_call(candidate, warm=False)
        return waited_us

    def _journal_call(self, candidate: Candidate | VendorCandidate, *, warm: bool) -> None:
        of = candidate.work, candidate.name, candidate.symbols
        self.journal.write(Called(self._number, *of, warm, self._flushed))
        self._number, self._flushed = self._number + 1, 0


class Candidate:
    """One configuration of one problem, ready to launch on rotating operands."""

    def __init__(self, work: int, name: str, launches: list[list[Launch]]) -> None:
        self.work, self.name, self._launches, self._turn = work, name, launches, 0
        self.symbols = tuple(launch[0] for launch in launches[0])

    def launch(self, bench: Bench) -> None:
        launch_all(self._launches[self._turn % len(self._launches)])
        self._turn += 1


class VendorCandidate:
    """The vendor library's call, between two marker kernels since its kernels' names are its own."""

    def __init__(self, work: int, calls: list[Any]) -> None:
        self.work, self.name, self._calls, self._turn = work, VENDOR, calls, 0
        self.symbols: tuple[str, ...] = ()

    def launch(self, bench: Bench) -> None:
        bench.support(BEGIN_SYMBOL)
        self._calls[self._turn % len(self._calls)]()
        bench.support(END_SYMBOL)
        self._turn += 1


class WorkOperands:
    """Operands and scratch of one problem; scratch grows to what the largest configuration needs."""

    def __init__(self, work: Work, bench: Bench) -> None:
        method, device = bench.method, bench.device
        self.problem, self._scratch, self._num_sms = work.problem, ScratchPool(device), count_sms(device)
        self._workload = workload_of(work.problem.kind)
        self._workload.require_memory(work.problem, method.rotating_bytes, device)
        made = self._workload.operands(work.problem, method.rotating_bytes, method.init_type, method.seed, device)
        self.sets: list[Any] = [bench.placement.moved(operands) for operands in made]

    def outgrow(self, flush_bytes: int) -> bool:
        """Whether the copies together are so large that rotating through them alone leaves none in L2."""
        return len(self.sets) > 1 and len(self.sets) * self.problem.bytes_moved >= flush_bytes

    def scratch_of(self, script: ModuleType, name: str) -> tuple[int, int]:
        """(fp32 partial sums, int32 locks) that a configuration needs."""
        return self._workload.scratch(script, script.CONFIGS[name], self.problem, self._num_sms)

    def launches(self, script: ModuleType, name: str) -> list[list[Launch]]:
        """The launches of a configuration on each set of operands."""
        config, scratch = script.CONFIGS[name], self._scratch.take(*self.scratch_of(script, name))
        calls = self._workload.launches
        return [calls(script, config, self.problem, operands, scratch, self._num_sms) for operands in self.sets]

    def baseline_calls(self) -> list[Any]:
        """The vendor library's call on each set of operands; empty where it has none."""
        calls = [self._workload.baseline_call(self.problem, operands) for operands in self.sets]
        return [] if None in calls else calls


def operands_of(bench: Bench, index: int, work: Work) -> WorkOperands | None:
    """The operands of a work; None when they do not fit, and each of its configurations is journalled so."""
    try:
        operands = WorkOperands(work, bench)
    except Exception as error:
        for _, name in work.entries:
            bench.journal.write(Begin(index, name))
            report_failure(bench.journal, index, name, error)
        return None
    bench.flushes = bool(bench.method.flush_bytes) and not operands.outgrow(bench.method.flush_bytes)
    return operands


def screen(bench: Bench, index: int, work: Work, scripts: list[ModuleType]) -> None:
    """Few calls of every configuration, and fewer of clear losers. What the deadline cuts off has no event.

    A loser is slow twice: one stall of the host costs a call and no candidate.
    """
    operands = operands_of(bench, index, work)
    if operands is None:
        return
    best_us = work.best_us or float("inf")
    for script, name in work.entries:
        if bench.late:
            return
        bench.journal.write(Begin(index, name))
        try:
            candidate = Candidate(index, name, operands.launches(scripts[script], name))
            for _ in range(bench.method.warmup_calls):
                bench.call(candidate, warm=True)
            bench.torch.cuda.synchronize()
            least_us, called = bench.timed_call_us(candidate), 1
            limit_us = bench.method.early_stop_ratio * best_us + EARLY_STOP_SLACK_US
            if least_us > limit_us:  # or the host was busy with something else
                least_us, called = min(least_us, bench.timed_call_us(candidate)), 2
            loser = least_us > limit_us
            best_us = min(best_us, least_us)
            if not loser:
                for _ in range(bench.method.timed_calls - called):
                    bench.call(candidate, warm=False)
                bench.torch.cuda.synchronize()
        except Exception as error:
            report_failure(bench.journal, index, name, error)
        else:
            bench.journal.write(End(index, name, loser))


def finals(bench: Bench, index: int, work: Work, scripts: list[ModuleType]) -> None:
    """Rounds over the finalists and the vendor library, each round in another order.

    Raises StickyError when a round fails: each ran alone before, so smaller finals must show which one fails.
    """
    running = finalists(bench, index, work, scripts)
    bench.rest()
    began, turns = time.perf_counter(), bench.method.warmup_calls + (work.rounds or bench.method.timed_calls)
    try:
        order = random.Random(f"{bench.method.seed} {bench.process} {index}")
        for turn in range(turns):
            if turn >= bench.method.warmup_calls + LEAST_ROUNDS and bench.over:
                turns = turn
                break
            bench.journal.write(Round(index, turn))
            order.shuffle(running)
            for candidate in running:
                bench.call(candidate, warm=turn < bench.method.warmup_calls)
            bench.torch.cuda.synchronize()
    except Exception as error:
        raise StickyError(f"{type(error).__name__}: {error}") from error
    bench.note_load(time.perf_counter() - began, turns * len(running))
    for candidate in running:
        bench.journal.write(End(index, candidate.name))


def finalists(bench: Bench, index: int, work: Work, scripts: list[ModuleType]) -> list[Candidate | VendorCandidate]:
    """The candidates of a work that ran once without an error, and the vendor library if it is wanted."""
    operands = operands_of(bench, index, work)
    if operands is None:
        return []
    # Scratch for the largest comes first: growing it later would free what others hold.
    names = sorted(work.entries, key=lambda e: operands.scratch_of(scripts[e[0]], e[1]), reverse=True)
    running: list[Candidate | VendorCandidate] = []
    for script, name in names:
        bench.journal.write(Begin(index, name))
        try:
            running.append(tried(bench, Candidate(index, name, operands.launches(scripts[script], name))))
        except Exception as error:
            report_failure(bench.journal, index, name, error)
    again = next((script for script, name in work.entries if name == work.again), None)
    if again is not None and any(candidate.name == work.again for candidate in running):
        launches = operands.launches(scripts[again], work.again)
        running.append(tried(bench, Candidate(index, AA_TEST, launches)))
    calls = operands.baseline_calls() if work.vendor else []
    if calls:
        bench.journal.write(Begin(index, VENDOR))
        try:
            running.append(tried(bench, VendorCandidate(index, calls)))
        except Exception as error:
            report_failure(bench.journal, index, VENDOR, error)
    return running


def tried(bench: Bench, candidate: Candidate | VendorCandidate) -> Candidate | VendorCandidate:
    """The candidate after one call of it, which was waited for."""
    bench.call(candidate, warm=True)
    bench.torch.cuda.synchronize()
    return candidate


# What Triton and the drivers say when a kernel does not fit the GPU; the run goes on after it.
OUT_OF_RESOURCES_WORDS = ("out of memory", "out of resource", "outofresources", "too many resources requested")
# Errors after which every later call of the process fails: the process must end. Those of one word are HIP's.
STICKY_WORDS = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
    "device-side assert",
    "hardware stack error",
    "invalid program counter",
    "launch timed out",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "context is destroyed",
    "devices unavailable",
    "cuda error: unknown error",
    "hiperrorillegaladdress",
    "hiperrorlaunchfailure",
    "hiperroreccnotcorrectable",
)


class StickyError(Exception):
    """The GPU context is lost; the configuration named in the journal's last line did it, or one of its round."""


def report_failure(journal: Journal, index: int, name: str, error: Exception) -> None:
    """Journals why a configuration could not run. Raises StickyError when nothing more can."""
    text = f"{type(error).__name__}: {error}"
    lower = text.lower()
    if any(words in lower for words in STICKY_WORDS):
        journal.write(Fail(index, name, Status.CRASHED, text))
        raise StickyError(text) from error
    too_large = any(words in lower for words in OUT_OF_RESOURCES_WORDS)
    status = Status.OUT_OF_RESOURCES if too_large else Status.LAUNCH_ERROR
    journal.write(Fail(index, name, status, text[:2000]))
