"""Compiles many kernels at once: every core, no GPU, and no compile can hold up or kill the run.

``multiprocess.Pool`` waits for ever for the task of a worker that died (cpython bpo-22393), so
the workers are held here one by one: each has a pipe, a process group and a deadline.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import multiprocess
from multiprocess.connection import wait

from gemm_tuner.compile_worker import CompileTask, serve
from gemm_tuner.errors import EnvironmentFault
from gemm_tuner.records import CompileResult, Status, Target

START_LIMIT_S = 120.0
EXIT_LIMIT_S = 2.0

Answer = tuple[CompileTask, CompileResult]


@dataclass
class Worker:
    """A worker process and the task it is at."""

    process: Any
    connection: Any
    task: CompileTask | None = None
    ready: bool = False
    deadline: float = 0.0

    def give(self, task: CompileTask, limit_s: float) -> None:
        self.task, self.deadline = task, time.monotonic() + limit_s
        with contextlib.suppress(OSError):  # a worker that just died: reading from it tells
            self.connection.send(task)

    def kill(self) -> None:
        """Ends the worker and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()


@dataclass
class CompilePool:
    """``run`` compiles tasks in the order given; use as a context manager.

    limit_s: longest time for one configuration; over it the worker is killed (COMPILE_TIMEOUT).
    """

    target: Target
    workers: int
    variables: dict[str, str]
    log_path: Path
    limit_s: float = 60.0
    _workers: list[Worker] = field(default_factory=list)

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def _start_worker(self) -> Worker:
        context = multiprocess.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self.target, self.variables, known_triton_key(), str(self.log_path))
        process = context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return Worker(process, ours, deadline=time.monotonic() + START_LIMIT_S)

    def run(self, tasks: Iterable[CompileTask]) -> Iterator[Answer]:
        """Yields every task with its result, in the order they end."""
        waiting = deque(tasks)
        left = len(waiting)
        while len(self._workers) < min(self.workers, left):
            self._workers.append(self._start_worker())
        for worker in self._workers:
            if worker.ready and waiting:
                worker.give(waiting.popleft(), self.limit_s)
        while left:
            for answer in self._step(waiting):
                left -= 1
                yield answer

    def _step(self, waiting: deque[CompileTask]) -> Iterator[Answer]:
        """Waits for the next answer or deadline, and hands out work."""
        busy = {w.connection: w for w in self._workers if w.task is not None or not w.ready}
        next_deadline = min((w.deadline for w in busy.values()), default=time.monotonic())
        answered = wait(list(busy), timeout=max(0.0, next_deadline - time.monotonic()))
        for connection in answered:
            worker = busy[connection]
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join(EXIT_LIMIT_S)  # it closed its pipe first: its exit status tells more than a kill's
                yield from self._replace(worker, waiting, Status.COMPILE_ERROR, "the compiler died")
                continue
            done, worker.task, worker.ready = worker.task, None, True
            if waiting:
                worker.give(waiting.popleft(), self.limit_s)
            if done is not None:
                yield done, answer
        now = time.monotonic()
        for worker in busy.values():
            if worker in self._workers and (worker.task or not worker.ready) and worker.deadline < now:
                message = f"not compiled within {self.limit_s:g} s"
                yield from self._replace(worker, waiting, Status.COMPILE_TIMEOUT, message)

    def _replace(self, worker: Worker, waiting: deque[CompileTask], status: Status, message: str) -> Iterator[Answer]:
        """Kills a worker; its task is answered with a failure and a new worker takes its place."""
        task = worker.task
        worker.kill()
        exit_code = worker.process.exitcode
        if not worker.ready:
            what = f"a compile worker ended at its start, exit status {exit_code}"
            raise EnvironmentFault(what, where=str(self.log_path), hint="does `python -c 'import triton'` work?")
        self._workers.remove(worker)
        if waiting:
            self._workers.append(self._start_worker())
        if task is not None:
            text = message if status == Status.COMPILE_TIMEOUT else f"{message} (exit {exit_code})"
            yield task, CompileResult(task.name, task.specialisation, status, seconds=self.limit_s, message=text)


@lru_cache(maxsize=1)
def known_triton_key() -> str:
    """Triton's hash of itself, so that the workers need not find it each."""
    from triton.runtime.cache import triton_key

    return str(triton_key())
