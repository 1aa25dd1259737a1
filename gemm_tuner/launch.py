"""Runs plans in launcher processes, under a profiler or not, and brings back what they found.

A launcher that dies or hangs costs the configuration it was at; the rest runs again in a new process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from gemm_tuner.errors import EnvironmentFault
from gemm_tuner.kernel_env import launcher_env
from gemm_tuner.launcher.journal import read_journal
from gemm_tuner.launcher.plan import STOP_FILE, Plan
from gemm_tuner.outcomes import Key, after, blame, collect, failures, given_up, without
from gemm_tuner.processes import Ended, run_watched
from gemm_tuner.profilers import Profiler, TraceError
from gemm_tuner.records import Status, Timing

MAX_ATTEMPTS = 25
# Starting a profiler, Python and torch, and making operands of GiBs, with the journal at rest.
START_LIMIT_S = 180.0
# One configuration: its first launch, which may still load it, and a few calls.
LAUNCH_LIMIT_S = 60.0
# Writing and converting the report of 10^5 kernels takes tens of seconds, with the journal at rest.
REPORT_LIMIT_S = 900.0

OnEvent = Callable[[dict[str, Any]], None]
OnFound = Callable[[dict[Key, Timing]], None]
# Beside a launcher's journal: what it holds is in the run's account.
ACCOUNTED = "accounted"


@dataclass
class StageRun:
    """What one stage brought: timings by (problem, configuration), JIT compiles, starts, seconds."""

    timings: dict[Key, Timing] = field(default_factory=dict)
    compiled: int = 0
    from_cache: int = 0
    starts: int = 0
    seconds: float = 0.0


def nobody(event: Any) -> None:
    """For those who do not want to hear of events."""


@dataclass(frozen=True)
class LiveLauncher:
    """Launches on a GPU of this machine. ``gpu`` is the id as torch numbers it.

    wind_down: whether the run is to end after the launch that runs.
    launch_limit_s: how long one configuration may take before its launcher is killed.
    """

    profiler: Profiler
    cache_dir: Path
    backend: str
    gpu: int = 0
    source: str = "measured"
    wind_down: Callable[[], bool] = field(default=lambda: False)
    launch_limit_s: float = LAUNCH_LIMIT_S
    stop: threading.Event = field(default_factory=threading.Event)

    def environment(self) -> dict[str, str]:
        visible = "CUDA_VISIBLE_DEVICES" if self.backend == "cuda" else "ROCR_VISIBLE_DEVICES"
        gpu = visible_gpu(self.backend, self.gpu, os.environ)
        env = launcher_env(self.cache_dir, {**self.profiler.environment(), visible: gpu})
        if self.backend == "hip":  # proton refuses to start beside these
            for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
                env.pop(name, None)
        return env

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = nobody, on_found: OnFound = nobody) -> StageRun:
        """Times every entry of the plan that its deadline leaves time for.

        on_found: hears of each start's timings before the next one begins.
        Raises EnvironmentFault when the profiler or the GPU fails as a whole.
        """
        run = StageRun()
        started = time.monotonic()
        profiler = self.profiler
        left = replace(plan, scopes=profiler.uses_scopes, capture_range=profiler.uses_capture_range)
        for attempt in range(MAX_ATTEMPTS):
            where = folder / f"start{attempt:02d}"
            ended = self._profile(left, where, on_event)
            run.starts += 1
            journal = read_journal(where / "journal.jsonl")
            run.compiled += sum(e["compiled"] for e in journal if e["event"] == "compiles")
            run.from_cache += sum(e["from_cache"] for e in journal if e["event"] == "compiles")
            finished = any(e["event"] == "finished" for e in journal)
            if finished and ended.exit_status != 0:
                raise profiler_failed(self.profiler, ended)
            blamed = None if finished else blame(left, journal, ended)
            try:
                found = collect(left, journal, self.profiler, where)
            except TraceError:
                if finished:
                    raise
                found = failures(left, journal)
            if finished:
                require_a_trace({**run.timings, **found}, self.profiler, ended)
            elif blamed is None:
                raise profiler_failed(self.profiler, ended)
            else:
                # What ran before the crash and is not in the trace went down with it: it runs again.
                found = {key: t for key, t in found.items() if t.status != Status.MISSING_IN_TRACE}
                found.setdefault((blamed.problem, blamed.name), blamed)
            on_found(found)
            (where / ACCOUNTED).touch()
            run.timings.update(found)
            left = without(left, run.timings)
            if finished or not left.work or self.wind_down():
                break
        else:
            found = given_up(left, MAX_ATTEMPTS)
            on_found(found)
            run.timings.update(found)
        run.seconds = time.monotonic() - started
        return run

    def _profile(self, plan: Plan, where: Path, on_event: OnEvent) -> Ended:
        """One start of the profiler; leaves plan, journal, log and trace in ``where``."""
        where.mkdir(parents=True)
        plan.write(where / "plan.json")
        argv = [sys.executable, plan.scripts[0], "--plan", str(where / "plan.json")]
        command = self.profiler.command(argv, where)
        ended = watch(command, self.environment(), where, on_event, self)
        export = self.profiler.export_command(where)
        if export is not None and (where / "journal.jsonl").exists():
            convert = run_watched(
                export, self.environment(), where / "export.log", heartbeat=lambda: 0, stall_limit_s=REPORT_LIMIT_S
            )
            if convert.exit_status != 0 and ended.exit_status == 0:
                raise profiler_failed(self.profiler, convert)
        return ended

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = nobody) -> None:
        """Checks the plan's entries; every journal event goes to ``on_event`` as it is written."""
        check_plan(plan, folder, self.environment(), on_event, self)

    def cancel(self) -> None:
        """Ends what runs, from another thread; its ``timings`` raises KeyboardInterrupt."""
        self.stop.set()


def visible_gpu(backend: str, gpu: int, env: Mapping[str, str]) -> str:
    """The driver's name of the GPU that torch calls ``gpu``: torch numbers what the environment leaves visible.

    HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES in its place, numbers what ROCR_VISIBLE_DEVICES leaves.
    """
    hip = "HIP_VISIBLE_DEVICES" if env.get("HIP_VISIBLE_DEVICES") else "CUDA_VISIBLE_DEVICES"
    name = str(gpu)
    for variable in ("CUDA_VISIBLE_DEVICES",) if backend == "cuda" else (hip, "ROCR_VISIBLE_DEVICES"):
        left = [part.strip() for part in env.get(variable, "").split(",") if part.strip()]
        if name.isdigit() and int(name) < len(left):
            name = left[int(name)]
    return name


@dataclass(frozen=True)
class InterpreterLauncher:
    """Checks kernels in Triton's interpreter on the CPU; times nothing."""

    cache_dir: Path
    source: str = "predicted"
    wind_down: Callable[[], bool] = field(default=lambda: False)
    launch_limit_s: float = START_LIMIT_S
    stop: threading.Event = field(default_factory=threading.Event)

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = nobody) -> None:
        env = launcher_env(self.cache_dir, {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""})
        check_plan(replace(plan, device="cpu"), folder, env, on_event, self)


class Watched(Protocol):
    """What a launcher says of the process it has started."""

    @property
    def wind_down(self) -> Callable[[], bool]: ...

    @property
    def launch_limit_s(self) -> float: ...

    @property
    def stop(self) -> threading.Event: ...


def check_plan(plan: Plan, folder: Path, env: dict[str, str], on_event: OnEvent, of: Watched) -> None:
    """Runs a verify plan, in a new process after each configuration that kills or hangs one."""
    left = plan
    for attempt in range(MAX_ATTEMPTS):
        where = folder / f"start{attempt:02d}"
        where.mkdir(parents=True)
        left.write(where / "plan.json")
        argv = [sys.executable, left.scripts[0], "--plan", str(where / "plan.json")]
        ended = watch(argv, env, where, on_event, of)
        (where / ACCOUNTED).touch()
        journal = read_journal(where / "journal.jsonl")
        if any(e["event"] == "finished" for e in journal):
            return
        blamed = blame(left, journal, ended)
        if blamed is None:
            raise EnvironmentFault(
                f"the check ended with {ended.how()}: {ended.log_tail() or 'it printed nothing'}",
                where=str(ended.log_path),
            )
        on_event({"event": "died", "problem": blamed.problem, "name": blamed.name, "message": blamed.message})
        # Works are checked in order: those before the blamed one's are done.
        at = [work.problem for work in left.work].index(blamed.problem)
        keep = [after(left.work[at], blamed), *left.work[at + 1 :]]
        left = replace(left, work=tuple(work for work in keep if work.entries))
        if not left.work:
            return


@dataclass
class JournalTail:
    """Follows a growing journal and passes its events on."""

    path: Path
    plan: Plan
    on_event: OnEvent
    finished_at: float | None = None
    running: bool = False
    _offset: int = 0

    def beat(self) -> object:
        """Changes while the launcher is alive, and for REPORT_LIMIT_S after it said that it has finished."""
        if self.path.exists():
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                new = stream.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.splitlines():
                self._pass_on(json.loads(line))
        if self.finished_at is None or time.monotonic() - self.finished_at > REPORT_LIMIT_S:
            return self._offset
        return time.monotonic()

    def _pass_on(self, event: dict[str, Any]) -> None:
        if event["event"] == "finished":
            self.finished_at = time.monotonic()
        if event["event"] in ("begin", "end", "fail"):
            self.running = event["event"] == "begin"
        if "work" in event and event["event"] != "call":
            self.on_event({**event, "work_problem": self.plan.work[event["work"]].problem})


def watch(argv: list[str], env: dict[str, str], where: Path, on_event: OnEvent, of: Watched) -> Ended:
    """Runs a launcher and follows its journal. Raises KeyboardInterrupt, the launcher killed, once ``of.stop`` is
    set; a run that winds down lets it finish the configuration it is at."""
    tail = JournalTail(where / "journal.jsonl", Plan.read(where / "plan.json"), on_event)

    def heartbeat() -> object:
        if of.stop.is_set():
            raise KeyboardInterrupt
        if of.wind_down():
            (where / STOP_FILE).touch()
        return tail.beat()

    def limit_s() -> float:
        return of.launch_limit_s if tail.running else START_LIMIT_S

    return run_watched(argv, env, where / "launcher.log", heartbeat=heartbeat, stall_limit_s=limit_s)


def profiler_failed(profiler: Profiler, ended: Ended) -> EnvironmentFault:
    """The error for a profiler that failed as a whole."""
    what = f"{profiler.name} ended with {ended.how()}"
    if ended.stalled:
        what = f"{profiler.name} did not come to an end and was killed"
    return EnvironmentFault(
        f"{what}: {ended.log_tail() or 'it printed nothing'}",
        where=str(ended.log_path),
        hint="read that file, or name another tool with --profiler",
    )


def require_a_trace(timings: dict[Key, Timing], profiler: Profiler, ended: Ended) -> None:
    """A trace that holds none of what ran is a fault of the profiler, not of the configurations."""
    missing = [t for t in timings.values() if t.status == Status.MISSING_IN_TRACE]
    if missing and not any(t.samples_us for t in timings.values()):
        errors = " | ".join(
            line.strip() for line in ended.log_path.read_text("utf-8", "replace").splitlines() if "rror" in line
        )
        raise EnvironmentFault(
            f"{profiler.name} recorded none of {len(missing)} configurations that ran: {missing[0].message}",
            where=str(ended.log_path),
            hint=f"its log says: {errors[:600]}" if errors else "name another tool with --profiler",
        )
