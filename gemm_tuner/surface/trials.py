"""Tries configurations in other processes before any runs here, so that a hang or crash only affects that
configuration."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status
from gemm_tuner.surface import tilelang_kernels
from gemm_tuner.surface.configurations import Candidate
from gemm_tuner.surface.profile_args import ProfileArgs
from gemm_tuner.surface.records import Rejected
from gemm_tuner.surface.trial_job import HINT, Job, job_of
from gemm_tuner.surface.tunables import Function, Kernel, Tunable
from gemm_tuner.system.cores import usable_cores
from gemm_tuner.system.installation import import_path
from gemm_tuner.system.processes import (
    MARK,
    OWNER,
    guarded_command,
    how_it_ended,
    identity,
    kill_family,
    module_command,
)

# Time limit for importing the user's module, torch and a compiler.
START_LIMIT_S = 300.0
# Interval at which a time limit is looked at.
LOOK_S = 0.1
# The time limit that stands for "no limit".
MOST_S = 24 * 3600.0
# TileLang's environment variables: share of the CPUs, number of CPUs, and maximum.
SHARE, COUNT, MOST = (f"TILELANG_AUTO_TUNING_{name}" for name in ("CPU_UTILITIES", "CPU_COUNTS", "MAX_CPU_COUNT"))
DEFAULT_SHARE = 0.9


def by_default(tunable: Tunable) -> bool:
    return isinstance(tunable, Function) and tilelang_kernels.is_jit(tunable.function)


def tried(tunable: Tunable, candidates: Sequence[Candidate], profile: ProfileArgs, given: Any) -> dict[int, Rejected]:
    """The candidates that failed, by index. @triton.jit kernels are compiled; kernels of factories are built, and
    launched unless only this process has the inputs. given: those of ``set_autotune_inputs``.

    Raises UserError for functions that another process cannot build.
    """
    if isinstance(tunable, Kernel):
        return _not_compiled(tunable, candidates, profile.timeout)
    if isinstance(tunable, Function):
        return rejected(job_of(tunable, profile, given), candidates, profile.timeout)
    return {}


def _not_compiled(tunable: Kernel, candidates: Sequence[Candidate], timeout_s: float) -> dict[int, Rejected]:
    """The candidates that do not compile for this machine's GPU, or for sm_90 without a GPU."""
    from gemm_tuner.surface.par_compile import par_compile

    configs = [one.values for one in candidates]
    named, workers = tunable.named(tunable.call), count_workers(len(configs))
    compiled = par_compile(tunable.function, configs, named, num_workers=workers, limit_s=timeout_s or MOST_S)
    failed = {place: one for place, one in enumerate(compiled) if one.status is not Status.OK}
    return {place: Rejected(one.status, one.reason) for place, one in failed.items()}


def count_workers(configurations: int) -> int:
    """The number of processes: that of TileLang's threads. Raises UserError for a variable that is not a number."""
    cpus = usable_cores()
    count, most = int(_variable(COUNT, -1)), int(_variable(MOST, -1))
    wanted = min(count, cpus) if count > 0 else int(cpus * _variable(SHARE, DEFAULT_SHARE))
    return max(1, min(wanted, configurations, most if most > 0 else configurations))


def _variable(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise UserError(f"is {text!r}", where=name, accepted=f"a number, such as {default:g}") from None


def rejected(job: Job, candidates: Sequence[Candidate], timeout_s: float) -> dict[int, Rejected]:
    """Tries all configurations of a factory; returns those that failed. timeout_s: separately for a build and a launch;
    0 for no limit.

    Raises UserError if no worker starts.
    """
    places: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(len(candidates)):
        places.put(place)
    found: dict[int, Rejected] = {}
    faults: list[UserError] = []

    def work(worker: _Worker) -> None:
        with worker:
            while not faults:
                try:
                    place = places.get_nowait()
                except queue.Empty:
                    return
                try:
                    worker.try_one(candidates[place])
                except Rejected as error:
                    found[place] = error
                except UserError as error:
                    faults.append(error)

    workers = [_Worker(job, timeout_s) for _ in range(count_workers(len(candidates)))]
    threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in workers]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        for worker in workers:  # Ctrl-C
            worker.stop()
    if faults:
        raise faults[0]
    return found


class _Worker:
    """A process that tries configurations; it is restarted after a crash."""

    def __init__(self, job: Job, timeout_s: float) -> None:
        self._job, self._timeout_s = job, timeout_s or None
        self._mark = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()
        self._unread = b""

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *about: object) -> None:
        self.stop()

    def try_one(self, candidate: Candidate) -> None:
        """Tries a configuration. Raises Rejected if it fails, UserError if the process cannot start."""
        process = self._process or self._start()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # reported when the answer is read
            process.stdin.write(json.dumps(dict(candidate.values), default=str).encode() + b"\n")
            process.stdin.flush()
        # Limits of the steps: the build, the inputs (which import torch), the launch.
        limits = (self._timeout_s, START_LIMIT_S, self._timeout_s)
        for limit_s, stage in zip(limits, (Status.COMPILE_TIMEOUT, Status.TIMEOUT, Status.TIMEOUT), strict=True):
            answer = self._answer(limit_s, stage)
            if "error" in answer:
                if answer["status"] == Status.CRASHED.value:
                    self.stop()
                raise Rejected(Status(answer["status"]), answer["error"])

    def _start(self) -> subprocess.Popen[bytes]:
        handle, path = tempfile.mkstemp(prefix="gemm_tuner_trial_", suffix=".log")
        self._log, self._unread = Path(path), b""
        with os.fdopen(handle, "wb") as log:
            self._process = subprocess.Popen(
                guarded_command(module_command("gemm_tuner.surface.trial_worker")),
                env={**os.environ, MARK: self._mark, OWNER: identity(os.getpid()), "PYTHONPATH": import_path()},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asdict(self._job)).encode() + b"\n")
            self._process.stdin.flush()
        try:
            self._answer(START_LIMIT_S, Status.TIMEOUT)
        except Rejected as error:
            what = f"cannot be had in another process: {error.reason}"
            raise UserError(what, where=self._job.function.qualname, hint=HINT) from error
        return self._process

    def _answer(self, limit_s: float | None, stage: Status) -> dict[str, Any]:
        """The next line. Raises Rejected if none arrives in time, or if the process ends."""
        process = self._process
        assert process is not None and process.stdout is not None
        ends = None if limit_s is None else time.monotonic() + limit_s
        while b"\n" not in self._unread:
            readable, _, _ = select.select([process.stdout], [], [], LOOK_S)
            if not readable:
                if ends is None or time.monotonic() < ends:
                    continue
                self.stop()
                mend = "" if limit_s == START_LIMIT_S else "; a larger timeout allows more"
                raise Rejected(stage, f"no end after {limit_s:g} s{mend}")
            block = os.read(process.stdout.fileno(), 65536)
            if not block:
                raise Rejected(Status.CRASHED, self._how_it_ended())
            self._unread += block
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _how_it_ended(self) -> str:
        """How the process ended, and its last output."""
        assert self._process is not None
        exit_status = self._process.wait()
        said = [one.strip() for one in self._log.read_text("utf-8", "replace").splitlines() if one.strip()]
        self.stop()
        return ": ".join([how_it_ended(exit_status), *said[-1:]])

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        kill_family(process.pid, self._mark)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._log.unlink(missing_ok=True)
