"""One worker of the compile pool, as the pool sees it: its process, its task, and whether it waits or hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.reduction import ForkingPickler
from typing import Any

from gemm_tuner.compile import fork_server
from gemm_tuner.core.language import CompileTask
from gemm_tuner.system.waiting import Spent, look_at

START_LIMIT_S = 120.0
# The end of a killed worker is waited for this long: one that waits for a disk that does not answer cannot be killed.
KILL_LIMIT_S = 10.0


@dataclass(eq=False)
class Worker:
    """A worker process and its current task.

    language: name of that of its tasks; "" for the pool's main one.
    finds:    it looks for kernels in the cache, and compiles none.
    """

    process: Any
    connection: Any
    language: str = ""
    finds: bool = False
    task: CompileTask | None = None
    ready: bool = False
    deadline: float = 0.0
    limit_s: float = START_LIMIT_S
    given: float = 0.0  # time.monotonic() when the task was given
    cpu_s: float = 0.0  # at that time
    seen_cpu_s: float = -1.0  # at the latest look
    stands_since: float = 0.0  # time.monotonic() since when it has had no CPU time, and no use for a core

    @cached_property
    def _spent(self) -> Spent:
        return Spent(self.process.pid)

    def give(self, task: CompileTask, limit_s: float) -> None:
        self.task, self.limit_s, self.given = task, limit_s, time.monotonic()
        self.deadline = self.given + limit_s
        self.cpu_s = self._spent.seconds()
        with contextlib.suppress(OSError):  # the worker has just died, which the next read reports
            # As connection.send, but not by dill, multiprocess's pickler, which takes 20 times as long for a task: the
            # pool's interpreter serves thirty workers beside a search.
            self.connection.send_bytes(ForkingPickler.dumps(task))

    def answer(self) -> Any:
        """What it has sent. Raises EOFError or OSError where it has died."""
        return ForkingPickler.loads(self.connection.recv_bytes())  # not by dill, as ``give``

    def waits(self) -> bool:
        """Whether it would compile if it could: workers run when nothing else does, so on a busy machine a compile of a
        second may take minutes. One that sleeps, or has had its time, does not wait; nor does one that has waited for a
        disk, without a moment of CPU time, for as long as its time limit."""
        group, now = look_at(self.process.pid), time.monotonic()
        if group.runs or group.cpu_s != self.seen_cpu_s:
            self.seen_cpu_s, self.stands_since = group.cpu_s, now
        waits = group.runs or (group.on_disk and now - self.stands_since < self.limit_s)
        return waits and group.cpu_s - self.cpu_s < self.limit_s

    def kill(self) -> None:
        """Kills the worker and everything it started. One that does not end is left to the operating system."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join(KILL_LIMIT_S)
        if self.process.exitcode is None:
            fork_server.disown(self.process)
        self.connection.close()
