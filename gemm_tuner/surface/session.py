"""The stages of tuning functions in this process: screening, agreement, finals."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.launch.failures import status_of
from gemm_tuner.launch.plan import AA_TEST
from gemm_tuner.surface.clocks import ChosenClock, Sample
from gemm_tuner.surface.failures import status_by, status_of_build
from gemm_tuner.surface.folder import SessionFolder
from gemm_tuner.surface.gpu import free_memory, wait
from gemm_tuner.surface.judge import Finding, Judge, fill_with_nan, one_line, other_bits
from gemm_tuner.surface.records import Call, Config, Effort, Rejected, Row, plain_config
from gemm_tuner.surface.time_limit import limited

Ready = Call | Callable[[], Any]
Build = Callable[[Config], Ready]

# A call within this much of the best never stops a configuration, because the host's time includes overhead.
SLACK_US = 100.0


@dataclass
class Session:
    """One run of ``tune_callables``. rows: by name. held: calls that may become finalists, by name. lost: why the GPU's
    context is lost; "" if it is not."""

    name: str
    build: Build
    judge: Judge
    clock: ChosenClock
    effort: Effort
    folder: SessionFolder
    rows: dict[str, Row] = field(default_factory=dict)
    held: dict[str, Call] = field(default_factory=dict)
    lost: str = ""
    order: tuple[str, ...] = ()
    ties: frozenset[str] = frozenset()
    best_host_us: float = float("inf")
    build_seconds: float = 0.0
    noise_pct: float | None = None

    @property
    def not_run(self) -> str:
        return f"not run: {self.lost} took the GPU's context"

    def record(self, row: Row) -> None:
        self.rows[row.name] = row
        self.folder.log(row)

    def fail(self, row: Row, status: Status, reason: str) -> None:
        self.held.pop(row.name, None)
        self.record(replace(row, status=status, reason=reason, verified=Verified.FALSE))

    def fail_by(self, row: Row, error: BaseException, status: Status | None = None) -> None:
        """Records an exception; after one that destroyed the GPU's context nothing more is run."""
        status = status or status_by(error)
        self.fail(row, status, one_line(error))
        if status is Status.CRASHED:
            self.lost, self.held = row.name, {}

    def screen(self, names: Sequence[str], configs: Sequence[Config]) -> None:
        """Builds, checks and times some configurations, and keeps those that may become finalists."""
        ready: dict[str, Call] = {}
        for name, config in zip(names, configs, strict=True):
            row = Row(config, name, Status.LAUNCH_ERROR, method=self.clock.method)
            if self.lost:
                self.fail(row, Status.CRASHED, self.not_run)
                continue
            call = self._built(row)
            if call is None and self.rows[name].status is Status.OUT_OF_RESOURCES and ready:
                self._time_and_keep(ready)  # frees configurations that may occupy the memory
                ready = {}
                free_memory()
                call = self._built(row)
            if call is not None:
                ready[name] = call
        self._time_and_keep(ready)

    def _time_and_keep(self, ready: Mapping[str, Call]) -> None:
        """Times these, and keeps those among the best so far."""
        self._time(ready)
        times = {name: us for name in self.held if (us := self.rows[name].us) is not None}
        keep = sorted(times, key=lambda name: times[name])[: self.effort.finalists]
        self.held = {name: self.held[name] for name in keep}

    def _built(self, row: Row) -> Call | None:
        """Builds a configuration, calls it once and checks it; None if it fails."""
        began = time.monotonic()
        try:
            with limited(self.effort.timeout_s):
                call = self._made(row.config)
        except Rejected as error:
            self.fail(row, error.status, error.reason)
            return None
        except Exception as error:
            self.fail_by(row, error, status_of_build(error))
            return None
        finally:
            self.build_seconds += time.monotonic() - began
        row = replace(row, details=dict(call.details))
        try:
            returned = self._first_call(call)
        except Exception as error:
            self.fail_by(row, error)
            return None
        try:
            found = self._judged(row.name, call, returned)
        except UserError:
            raise
        except Exception as error:
            self.fail_by(row, error)
            return None
        row = replace(row, max_abs_error=found.max_abs_error, mismatched_ratio=found.mismatched_ratio)
        if found.reason:
            self.fail(row, Status.WRONG, found.reason)
            return None
        try:
            reason = other_bits(call, returned, self.judge.check_of(call).repeats, self._first_call)
        except Exception as error:
            self.fail_by(row, error)
            return None
        if reason:
            self.fail(row, Status.UNSTABLE, reason)
            return None
        self.rows[row.name] = replace(row, verified=found.verified)
        return call

    def _judged(self, name: str, call: Call, returned: Any) -> Finding:
        """Checks the outputs. Raises errors that destroyed the GPU's context, which may only appear now."""
        try:
            return self.judge.judge(name, call, returned)
        except UserError:
            raise
        except Exception as error:
            if status_of(error) is Status.CRASHED:
                raise
            return Finding(f"cannot be compared: {one_line(error)}")

    def _made(self, config: Mapping[str, Any]) -> Call:
        made = self.build(dict(config))
        return made if isinstance(made, Call) else Call(made)

    def _first_call(self, call: Call) -> Any:
        if call.before:
            call.before()
        fill_with_nan(call.outputs)
        with limited(self.effort.timeout_s):
            returned = call.run()
            wait()
        return returned

    def _time(self, ready: Mapping[str, Call]) -> None:
        """Times a few calls of each, except of clearly slow ones, which were called twice."""
        for name, call in list(ready.items()):
            if self.lost:
                self.fail(self.rows[name], Status.CRASHED, self.not_run)
            else:
                self._warm_up(name, call)
        timed = {name: call for name, call in ready.items() if name in self.held}
        turns = [(name, call) for _ in range(self.effort.screen_calls) for name, call in timed.items()]
        for name, samples in self._samples(turns).items():
            self.record(replace(self.rows[name], status=Status.OK, samples_us=samples, us=statistics.median(samples)))

    def _warm_up(self, name: str, call: Call) -> None:
        """Makes the warm-up calls, and keeps the configuration unless it is clearly slow or fails."""
        row = self.rows[name]
        try:
            least_us = float("inf")
            for _ in range(max(1, self.effort.warmup - 1)):
                if call.before:
                    call.before()
                began = time.perf_counter()
                call.run()
                wait()
                least_us = min(least_us, (time.perf_counter() - began) * 1e6)
        except Exception as error:
            self.fail_by(row, error)
            return
        limit_us = self.effort.early_stop_ratio * self.best_host_us + SLACK_US
        stops = self.effort.early_stop_ratio and not self.judge.judges_later  # a fast one may later be found wrong
        if stops and least_us > limit_us:
            reason = f"{least_us:.6g} us by the host's clock, the best {self.best_host_us:.6g}"
            self.record(replace(row, status=Status.EARLY_STOPPED, reason=reason))
            return
        self.best_host_us = min(self.best_host_us, least_us)
        self.held[name] = call

    def _samples(self, turns: Sequence[tuple[str, Call]]) -> dict[str, tuple[float, ...]]:
        """The samples of those that always ran, by name; the others are recorded as failed."""
        if self.lost or not turns:
            return {}
        try:
            found = self.clock.measure([call for _, call in turns])
        except UserError:
            raise
        except Exception as error:  # raised while waiting for all calls, so it belongs to no single call
            if status_of(error) is not Status.CRASHED:
                raise
            self._lose(turns, error)
            return {}
        by_name: dict[str, list[Sample]] = {}
        for (name, _), sample in zip(turns, found, strict=True):
            by_name.setdefault(name, []).append(sample)
        sound = {}
        for name, samples in by_name.items():
            fault = next((one for one in samples if isinstance(one, Exception)), None)
            if name == AA_TEST and (fault is not None or None in samples):
                continue
            if fault is not None:
                self.fail_by(self.rows[name], fault)
            elif None in samples:
                self.fail(self.rows[name], Status.MISSING_IN_TRACE, f"{self.clock.name} saw nothing of it")
            else:
                sound[name] = tuple(float(one) for one in samples if isinstance(one, (int, float)))
        return sound

    def _lose(self, turns: Sequence[tuple[str, Call]], error: Exception) -> None:
        """Handles an error of one of several calls that destroyed the GPU's context: nothing more can be run."""
        for name in dict.fromkeys(name for name, _ in turns if name != AA_TEST):
            if self.rows[name].us is None:
                self.fail(self.rows[name], Status.CRASHED, f"one of a round took the GPU's context: {one_line(error)}")
        self.lost, self.held = "a round", {}

    def record_agreement(self) -> None:
        """Without a reference: marks configurations that agree with most as correct, and others as wrong."""
        agreed, others = self.judge.agreed()
        for name, row in list(self.rows.items()):
            if name in others:
                self.fail(row, Status.WRONG, others[name])
            elif name in agreed and row.status is Status.OK:
                self.rows[name] = replace(row, verified=Verified.AGREED)

    def finals(self, baselines: Mapping[str, Ready], seed: int) -> None:
        """Runs rounds over the finalists and the baselines, each in a different order, and ranks them."""
        from gemm_tuner.surface.ranking import rank  # imports scipy, which screening processes do not need

        finalists = self._finalists()
        beside = self._baselines(baselines)
        duplicate_of = next(iter(finalists), "") if len(finalists) + len(beside) > 1 else ""
        again = {AA_TEST: finalists[duplicate_of]} if duplicate_of else {}
        order, entries = random.Random(seed), list({**finalists, **beside, **again}.items())
        turns: list[tuple[str, Call]] = []
        for _ in range(self.effort.rounds if finalists or beside else 0):
            order.shuffle(entries)
            turns.extend(entries)
        samples = self._samples(turns)
        configs = {name: plain_config(self.rows[name].config) for name in finalists if name in samples}
        if samples:
            ranked = rank(self.name, samples, configs, duplicate_of)
            self.order, self.ties, self.noise_pct = ranked.order, ranked.ties, ranked.noise_pct
            for name, found in ranked.times.items():
                self.record(replace(self.rows[name], us=found.us, samples_us=samples[name], finalist=name in configs))
        if not self.order:  # the GPU's context is lost; the screening results remain
            timed = [
                row for row in self.rows.values() if row.us is not None and not row.baseline and row.status is Status.OK
            ]
            self.order = tuple(row.name for row in sorted(timed, key=lambda row: row.us or 0.0))

    def _finalists(self) -> dict[str, Call]:
        """The best few correct ones. Some must be built again if faster ones were found wrong after they were freed."""
        timed = [row for row in self.rows.values() if row.status is Status.OK and row.us is not None]
        timed.sort(key=lambda row: row.us or 0.0)
        limit = self.effort.within * (timed[0].us or 0.0) if timed else 0.0
        found = {}
        for row in timed[: self.effort.finalists] if not self.lost else ():
            if (row.us or 0.0) <= limit:
                call = self.held.get(row.name) or self._built(row)
                if call is not None:
                    self.rows[row.name] = row
                    found[row.name] = call
        self.held = found
        return found

    def _baselines(self, baselines: Mapping[str, Ready]) -> dict[str, Call]:
        """The baselines that ran once without an error; they are not checked."""
        running = {}
        for name, made in baselines.items():
            if name in self.rows:
                raise UserError(f"a baseline has the name of a configuration, {name!r}", where=self.name)
            call = made if isinstance(made, Call) else Call(made)
            self.rows[name] = Row(
                {}, name, Status.OK, baseline=True, method=self.clock.method, details=dict(call.details)
            )
            try:
                self._first_call(call)
            except Exception as error:
                self.fail_by(self.rows[name], error)
            else:
                running[name] = call
        return running
