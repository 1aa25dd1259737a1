"""Launches configurations so that a profiler can time them.

Times in results come from the profiler only. The host's clock is only used to stop slow configurations early.
"""

from __future__ import annotations

import math
import random
import time
from types import ModuleType

from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.candidates import Candidate, VendorCandidate, WorkOperands
from gemm_tuner.launch.failures import StickyError, report_failure
from gemm_tuner.launch.journal import FIRST_CALLS, OPERANDS, REST, ROUNDS, Begin, End, Round
from gemm_tuner.launch.plan import AA_TEST, VENDOR, Work
from gemm_tuner.launch.reference import Reference

# A call within this much of the best never stops a configuration, because the host's time includes overhead.
EARLY_STOP_SLACK_US = 100.0
# Number of rounds that finals make even if their time is over.
LEAST_ROUNDS = 5


def operands_of(bench: Bench, index: int, work: Work) -> WorkOperands | None:
    """The operands of a work. If they do not fit, all of its configurations are journalled as failed, and the result is
    None."""
    try:
        operands = WorkOperands(work, bench.method, bench.device, bench.placement)
    except Exception as error:
        for _, name in work.entries:
            bench.journal.write(Begin(index, name))
            report_failure(bench.journal, index, name, error)
        return None
    bench.flushes = bool(bench.method.flush_bytes) and not operands.outgrow(bench.method.flush_bytes)
    return operands


def screen(bench: Bench, index: int, work: Work, scripts: list[ModuleType]) -> None:
    """Screening: a few calls of every configuration. Configurations that the deadline cuts off have no event.

    A slow configuration is stopped only after two slow calls, because a single one may be a stall of the host.
    """
    operands = operands_of(bench, index, work)
    if operands is None:
        return
    best_us = work.best_us or float("inf")
    reference = Reference(bench, operands, index, work, scripts)
    for place, (script, name) in enumerate(work.entries, 1):
        if bench.late:
            return
        bench.journal.write(Begin(index, name))
        try:
            reference.call_when_due()
            candidate = operands.candidate(index, scripts[script], name)
            for _ in range(bench.method.warmup_calls):
                bench.call(candidate, warm=True)
            bench.processor.wait()
            least_us, called = bench.timed_call_us(candidate), 1
            limit_us = bench.method.early_stop_ratio * best_us + EARLY_STOP_SLACK_US
            if least_us > limit_us:  # a larger single time may be a stall of the host
                least_us, called = min(least_us, bench.timed_call_us(candidate)), 2
            loser = least_us > limit_us
            best_us = min(best_us, least_us)
            if not loser:
                for _ in range(bench.method.timed_calls - called):
                    bench.call(candidate, warm=False)
                bench.processor.wait()
                reference.offer((script, name), least_us)
            reference.count()
            reference.call_when_due(last=place == len(work.entries))
        except Exception as error:
            report_failure(bench.journal, index, name, error)
        else:
            bench.journal.write(End(index, name, loser))


def finals(bench: Bench, index: int, work: Work, scripts: list[ModuleType]) -> None:
    """Finals: rounds over the finalists and the vendor library, each round in a different order.

    Raises StickyError if a round fails. All of them ran alone without an error before, so the caller must find the
    failing one by repeating the finals with fewer configurations.
    """
    running = finalists(bench, index, work, scripts)
    with bench.spent.of(REST):
        bench.rest()
    turns, shortest_s = bench.method.warmup_calls + (work.rounds or bench.method.timed_calls), math.inf
    try:
        order = random.Random(f"{bench.method.seed} {bench.process} {index}")
        for turn in range(turns):
            if turn >= bench.method.warmup_calls + LEAST_ROUNDS and bench.over:
                break
            bench.journal.write(Round(index, turn))
            order.shuffle(running)
            began = time.perf_counter()
            with bench.spent.of(ROUNDS):
                for candidate in running:
                    bench.call(candidate, warm=turn < bench.method.warmup_calls)
                bench.processor.wait()
            if turn >= bench.method.warmup_calls:  # the others have no flush
                shortest_s = min(shortest_s, time.perf_counter() - began)
    except Exception as error:
        raise StickyError(f"{type(error).__name__}: {error}") from error
    bench.note_load(shortest_s, len(running))
    for candidate in running:
        bench.journal.write(End(index, candidate.name))


def finalists(bench: Bench, index: int, work: Work, scripts: list[ModuleType]) -> list[Candidate | VendorCandidate]:
    """The candidates of a work that ran once without an error, and the vendor library if the work includes it."""
    with bench.spent.of(OPERANDS):
        operands = operands_of(bench, index, work)
    if operands is None:
        return []
    # Allocate the largest scratch first; growing it later would free memory that other candidates refer to.
    names = sorted(work.entries, key=lambda e: operands.scratch_of(scripts[e[0]], e[1]), reverse=True)
    running: list[Candidate | VendorCandidate] = []
    for script, name in names:
        bench.journal.write(Begin(index, name))
        try:
            running.append(tried(bench, operands.candidate(index, scripts[script], name)))
        except Exception as error:
            report_failure(bench.journal, index, name, error)
    again = next((script for script, name in work.entries if name == work.again), None)
    if again is not None and any(candidate.name == work.again for candidate in running):
        running.append(tried(bench, operands.candidate(index, scripts[again], work.again, AA_TEST)))
    calls = operands.baseline_calls() if work.vendor else []
    if calls:
        bench.journal.write(Begin(index, VENDOR))
        try:
            running.append(tried(bench, VendorCandidate(index, calls)))
        except Exception as error:
            report_failure(bench.journal, index, VENDOR, error)
    return running


def tried(bench: Bench, candidate: Candidate | VendorCandidate) -> Candidate | VendorCandidate:
    """Makes one call of the candidate, waits for it, and returns the candidate."""
    with bench.spent.of(FIRST_CALLS):
        bench.call(candidate, warm=True)
        bench.processor.wait()
    return candidate
