"""Clocks for functions in this process: proton (part of Triton), stream events, and the host's clock."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.markers import FLUSH_SYMBOL
from gemm_tuner.languages.triton import proton_session
from gemm_tuner.surface.gpu import flush_bytes, gpu_held, gpu_in_use, gpu_is_there
from gemm_tuner.surface.records import IN_PROCESS, USER, Call

# The result of a timed call: microseconds, or the exception that it raised; None if the clock did not observe it.
Sample = float | Exception | None

# Number of calls between two waits for the GPU; their events and outputs are kept until then.
BATCH = 64
UNITS_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


class Clock(Protocol):
    """Times calls. name: for results."""

    name: str

    def measure(self, turns: Sequence[Call]) -> list[Sample]:
        """Makes the calls in order, each preceded by its ``before``, and returns their times."""


class HostClock:
    """The host's clock, for functions that have ended when they return. Caches are not flushed."""

    name = "host"

    def measure(self, turns: Sequence[Call]) -> list[Sample]:
        return [self._one(call) for call in turns]

    def _one(self, call: Call) -> Sample:
        try:
            if call.before:
                call.before()
            began_ns = time.perf_counter_ns()
            call.run()
            return (time.perf_counter_ns() - began_ns) / 1e3
        except Exception as error:
            return error


class UserClock:
    """A user's benchmark function, which runs a function and returns its time."""

    name = "user"

    def __init__(self, benchmark: Callable[[Callable[[], Any]], float], unit: str) -> None:
        """Raises UserError for an unknown unit."""
        if unit not in UNITS_US:
            raise UserError(f"there is no unit {unit!r}", where="benchmark_unit", accepted=", ".join(UNITS_US))
        self._benchmark, self._unit_us = benchmark, UNITS_US[unit]

    def measure(self, turns: Sequence[Call]) -> list[Sample]:
        return [self._one(call) for call in turns]

    def _one(self, call: Call) -> Sample:
        try:
            if call.before:
                call.before()
            number = float(self._benchmark(call.run))
        except Exception as error:
            return error
        if not 0 < number < math.inf:
            return ValueError(f"the benchmark returned {number}")
        return number * self._unit_us


class _Flushes:
    """Flushes L2 before a call, which also keeps the GPU busy while the host launches the call."""

    @cached_property
    def _flush(self) -> Callable[[], Any]:
        import torch

        size, device = flush_bytes(), torch.device("cuda", torch.cuda.current_device())
        if find_spec("triton") is None:
            buffer = torch.empty(size, dtype=torch.uint8, device=device)
            return lambda: buffer.zero_()
        from gemm_tuner.core.language import language_of

        return language_of("triton").support_calls(size, str(device))[FLUSH_SYMBOL]

    def prepare(self, call: Call) -> None:
        if call.before:
            call.before()
        self._flush()


class EventClock(_Flushes):
    """Stream events before and after each call. The time of a call is too long if the host takes longer to launch it
    than its kernels take."""

    name = "events"

    def measure(self, turns: Sequence[Call]) -> list[Sample]:
        return [one for at in range(0, len(turns), BATCH) for one in self._batch(turns[at : at + BATCH])]

    def _batch(self, turns: Sequence[Call]) -> list[Sample]:
        import torch

        found: list[tuple[Any, Any] | Exception] = []
        for call in turns:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            try:
                self.prepare(call)
                begin.record()
                call.run()
                end.record()
                found.append((begin, end))
            except Exception as error:
                found.append(error)
        torch.cuda.synchronize()
        return [one if isinstance(one, Exception) else one[0].elapsed_time(one[1]) * 1e3 for one in found]


class ProtonClock(_Flushes):
    """Triton's profiler proton in this process (CUPTI, roctracer). The time of a call is the sum of its kernels'
    times."""

    name = "proton"

    def measure(self, turns: Sequence[Call]) -> list[Sample]:
        """As Clock.measure. Raises ClockFault if proton cannot be started."""
        import torch

        from gemm_tuner.profilers.base import TraceError
        from gemm_tuner.profilers.proton import OUTPUT, read_file

        errors: dict[int, Exception] = {}
        with tempfile.TemporaryDirectory(prefix="gemm_tuner-") as folder:
            try:
                with proton_session.shadow_session(Path(folder, "trace")):
                    for number, call in enumerate(turns):
                        try:
                            self.prepare(call)
                            with proton_session.scope(number):
                                call.run()
                        except Exception as error:
                            errors[number] = error
                        if number % BATCH == BATCH - 1:
                            torch.cuda.synchronize()
                    torch.cuda.synchronize()
                frame = read_file(Path(folder, OUTPUT))
            except proton_session.SessionFault as error:
                raise ClockFault(str(error)) from error
            except TraceError as error:
                raise ClockFault(f"proton: {error.what}") from error
        by_scope = frame.groupby("scope")["duration_ns"].sum()
        times = {str(scope): float(ns) / 1e3 for scope, ns in by_scope.items()}
        return [errors.get(number, times.get(f"L{number}")) for number in range(len(turns))]


class ClockFault(Exception):
    """A clock cannot be used here; another one may be usable."""


CLOCKS: dict[str, Callable[[], Clock]] = {"proton": ProtonClock, "events": EventClock, "host": HostClock}


class ChosenClock:
    """A clock given by name or as an object; for "auto" the first of proton, events and host that observes the calls.

    It is chosen after the first calls, so that a program without a GPU never imports torch. locks: hold the GPU's lock
    while timing; False if the parent process holds it.
    """

    def __init__(self, asked: str | Clock, *, locks: bool = True) -> None:
        """Raises UserError for an unknown name."""
        if isinstance(asked, str) and asked not in (*CLOCKS, "auto"):
            accepted = ", ".join(("auto", *CLOCKS))
            raise UserError(f"there is no clock {asked!r}", where="clock", accepted=f"{accepted}, or an object")
        self._asked, self._locks = asked, locks
        self._chosen: Clock | None = None if isinstance(asked, str) else asked

    @property
    def name(self) -> str:
        return self._chosen.name if self._chosen else "none"

    @property
    def method(self) -> str:
        return USER if isinstance(self._chosen, UserClock) else IN_PROCESS

    def measure(self, turns: Sequence[Call]) -> list[Sample]:
        """As Clock.measure. Raises UserError if the requested clock cannot be used."""
        if self._chosen is not None:
            return self._timed(self._chosen, turns)
        for name in self._candidates():
            clock = CLOCKS[name]()
            try:
                found = self._timed(clock, turns)
            except ClockFault as error:
                if self._asked == name:
                    raise UserError(str(error), where="clock", accepted="auto, events") from error
                continue
            seen = [one for one in found if not isinstance(one, Exception)]
            if not seen:
                return found
            if self._asked == name or None not in seen:
                self._chosen = clock
                return found
            if not any(seen):  # no kernels at all, so these are CPU functions
                break
        self._chosen = HostClock()
        return self._chosen.measure(turns)

    def _timed(self, clock: Clock, turns: Sequence[Call]) -> list[Sample]:
        with gpu_held() if self._locks and isinstance(clock, _Flushes) else contextlib.nullcontext():
            return clock.measure(turns)

    def _candidates(self) -> list[str]:
        if self._asked != "auto":
            if self._asked != HostClock.name and not gpu_is_there():
                raise UserError(f"{self._asked} times GPUs, and torch sees none", where="clock", accepted="auto, host")
            return [str(self._asked)]
        if not gpu_in_use():
            return ["host"]
        return [*(["proton"] if proton_session.is_there() else []), "events"]
