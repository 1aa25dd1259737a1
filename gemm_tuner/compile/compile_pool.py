"""The processes that compile: every core, no GPU, and no compile can hold up or kill the run.

``multiprocess.Pool`` waits for ever for the task of a worker that died (cpython bpo-22393), so
the workers are held here one by one: each has a pipe, a process group and a deadline.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import sys
import time
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import multiprocess
from multiprocess.connection import wait

from gemm_tuner.compile.compile_worker import serve
from gemm_tuner.compile.task_queue import TaskKey, TaskQueue, key_of
from gemm_tuner.core.errors import FREE_SPACE, EnvironmentFault
from gemm_tuner.core.language import CompileTask, Language
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.system import memory
from gemm_tuner.system.processes import FROM_OUTSIDE, MOST_CRASHES

START_LIMIT_S = 120.0
EXIT_LIMIT_S = 2.0
# How soon a task that another thread adds, or the end of the queue, is seen while no worker answers.
LOOK_S = 0.05
# A compile may take this many times the median of those before it, 30 s at least and the pool's limit at most.
TIMES_THE_MEDIAN = 30.0
LEAST_LIMIT_S = 30.0
ENOUGH_TO_JUDGE = 20
# Workers that may end at their start, one after another, before the machine is said to be at fault.
MOST_FAILED_STARTS = 3
# The latest compiles that are judged by.
REMEMBERED = 200

Answer = tuple[CompileTask, CompileResult]


@contextlib.contextmanager
def without_main_script() -> Iterator[None]:
    """Processes that are started meanwhile do not import the main script, as spawned ones do: they need nothing of it,
    and a script that calls this package without asking for its own name would start everything again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass
class Worker:
    """A worker process and the task it is at."""

    process: Any
    connection: Any
    task: CompileTask | None = None
    ready: bool = False
    deadline: float = 0.0
    limit_s: float = START_LIMIT_S

    def give(self, task: CompileTask, limit_s: float) -> None:
        self.task, self.limit_s, self.deadline = task, limit_s, time.monotonic() + limit_s
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
    """``run`` compiles the tasks of a queue in its order; use as a context manager.

    cache: the folder of compiled kernels. scripts_dir: holds the files of the tasks' scripts.
    limit_s: longest time for one configuration; over it the worker is killed (COMPILE_TIMEOUT).
    memory_bytes: what a worker may take beside what it has at its start; 0 is its share of the machine.
    kind: of the problems, which may prepare workers.
    """

    language: Language
    target: Target
    workers: int
    cache: Path
    log_path: Path
    scripts_dir: Path
    limit_s: float = 60.0
    memory_bytes: int = 0
    kind: str = ""
    _workers: list[Worker] = field(default_factory=list)
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _deaths: Counter[TaskKey] = field(default_factory=Counter)
    _failed_starts: int = 0

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    @cached_property
    def _argument(self) -> str:
        return self.language.worker_argument(self.cache.parent)

    def _start_worker(self) -> Worker:
        context = multiprocess.get_context("spawn")
        ours, theirs = context.Pipe()
        share = self.memory_bytes or memory.share_bytes(self.workers)
        paths = (str(self.log_path), str(self.scripts_dir))
        variables = self.language.environment(self.cache)
        arguments = (theirs, self.language.name, self.target, variables, self._argument, *paths, share, self.kind)
        process = context.Process(target=serve, args=arguments, daemon=True)
        with without_main_script():
            process.start()
        theirs.close()
        return Worker(process, ours, deadline=time.monotonic() + START_LIMIT_S)

    def run(self, tasks: Iterable[CompileTask] | TaskQueue) -> Iterator[Answer]:
        """Yields every task with its result, in the order they end, until the queue ends.

        Raises EnvironmentFault when workers cannot start, or cannot write the cache.
        """
        queue = tasks if isinstance(tasks, TaskQueue) else TaskQueue(tasks)
        while not queue.closed:
            self._hand_out(queue)
            if any(worker.task is not None for worker in self._workers) or len(queue):
                yield from self._step(queue)
            elif not queue.wait():
                return

    def _hand_out(self, queue: TaskQueue) -> None:
        """Gives idle workers tasks, and starts workers while there are more tasks than that."""
        for worker in self._workers:
            if worker.ready and worker.task is None:
                task = queue.take()
                if task is None:
                    return
                worker.give(task, self.limit)
        starting = sum(1 for worker in self._workers if not worker.ready)
        missing = min(self.workers - len(self._workers), len(queue) - starting)
        for _ in range(missing):
            self._workers.append(self._start_worker())

    @property
    def limit(self) -> float:
        """Seconds that the next compile may take: adapts to those before it."""
        if len(self._seconds) < ENOUGH_TO_JUDGE:
            return self.limit_s
        return min(self.limit_s, max(LEAST_LIMIT_S, TIMES_THE_MEDIAN * statistics.median(self._seconds)))

    def _step(self, queue: TaskQueue) -> Iterator[Answer]:
        """Yields what is answered, or is over its deadline, within LOOK_S."""
        busy = {w.connection: w for w in self._workers if w.task is not None or not w.ready}
        next_deadline = min((w.deadline for w in busy.values()), default=time.monotonic())
        timeout = max(0.0, next_deadline - time.monotonic())
        answered = wait(list(busy), timeout=min(timeout, LOOK_S))
        for connection in answered:
            worker = busy[connection]
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join(EXIT_LIMIT_S)  # it closed its pipe first: its exit status tells more than a kill's
                yield from self._replace(worker, queue, Status.COMPILE_ERROR, "the compiler died")
                continue
            if worker.ready and isinstance(answer, str):
                raise EnvironmentFault(answer, where=str(self.cache), hint=FREE_SPACE)
            self._failed_starts = 0
            done, worker.task, worker.ready = worker.task, None, True
            if done is not None:
                if not answer.cached:
                    self._seconds.append(answer.seconds)
                task = queue.take()
                if task is not None:
                    worker.give(task, self.limit)
                yield done, answer
        now = time.monotonic()
        for worker in busy.values():
            if worker in self._workers and (worker.task or not worker.ready) and worker.deadline < now:
                message = f"not compiled within {worker.limit_s:g} s"
                yield from self._replace(worker, queue, Status.COMPILE_TIMEOUT, message)

    def _replace(self, worker: Worker, queue: TaskQueue, status: Status, message: str) -> Iterator[Answer]:
        """Kills a worker and answers its task with a failure; a new worker starts when there is a task for it.

        A task whose worker somebody else killed goes back once.
        """
        task = worker.task
        worker.kill()
        exit_code = worker.process.exitcode
        self._workers.remove(worker)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts < MOST_FAILED_STARTS:
                return
            what = f"a compile worker ended at its start, exit status {exit_code}"
            raise EnvironmentFault(what, where=str(self.log_path), hint=f"does `{self.language.test_command}` work?")
        if task is not None:
            key = key_of(task)
            self._deaths[key] += 1
            if status == Status.COMPILE_ERROR and exit_code in FROM_OUTSIDE and self._deaths[key] < MOST_CRASHES:
                queue.requeue(task)
                return
            text = message if status == Status.COMPILE_TIMEOUT else f"{message} (exit {exit_code})"
            yield task, CompileResult(task.name, task.specialization, status, seconds=worker.limit_s, message=text)
