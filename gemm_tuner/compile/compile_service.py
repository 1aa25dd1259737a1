"""Compiles in a background thread while kernels are timed: first what a caller waits for, then what is likely needed
next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol

from gemm_tuner.compile.task_queue import TaskKey, TaskQueue, key_of
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import CompileResult

LOOK_S = 0.3
# What a worker takes for a kernel, until the first has ended: of 1997 kernels of the full search of 4096x4096x4096, 0.7
# s in the mean (benchmarks/gpu_checks.sh, part wide, 16 workers).
TYPICAL_S = 0.7
OnResult = Callable[[CompileTask, CompileResult], None]


class Compiler(Protocol):
    """Compiles on this machine or others; use as a context manager, whose end also ends what is being compiled."""

    @property
    def workers(self) -> int:
        """How many configurations are compiled at a time, at the most."""

    def __enter__(self) -> Compiler: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self, tasks: TaskQueue) -> Iterator[tuple[CompileTask, CompileResult]]:
        """Yields every task with its result, in the order they end, until the queue ends. A task that another thread
        adds, or drops, is seen soon; the binary of a yielded one is in the run's cache.

        Raises EnvironmentFault when nothing can be compiled, or stored.
        """


class CompileService:
    """Runs a CompilePool in a thread. Use it as a context manager. ``results`` grows as tasks are completed.

    known:     results of earlier runs, which are not compiled again.
    on_result: called in the service's thread with every task and result, before it is in ``results``.
    busy_s:    total time of the workers in compilations, seconds. compiling_s: without cache hits.
    compiled, cached: number of results that were compiled, and that were cache hits.
    """

    def __init__(
        self, compiler: Compiler, on_result: OnResult, known: dict[TaskKey, CompileResult] | None = None
    ) -> None:
        self.compiler, self.results = compiler, dict(known or {})
        self.busy_s, self.compiling_s, self.compiled, self.cached = 0.0, 0.0, 0, 0
        self._on_result = on_result
        self._queue = TaskQueue(stays_open=True)
        self._changed = threading.Condition()
        self._missing: set[TaskKey] = set()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="compiler", daemon=True)

    def __enter__(self) -> CompileService:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self.compiler:
                for task, result in self.compiler.run(self._queue):
                    self._on_result(task, result)
                    with self._changed:
                        self.busy_s += result.seconds
                        self.compiling_s += 0.0 if result.cached else result.seconds
                        self.cached += result.cached
                        self.compiled += not result.cached
                        self.results[key_of(task)] = result
                        self._missing.discard(key_of(task))
                        self._changed.notify_all()
        except BaseException as error:  # re-raised in compile()
            with self._changed:
                self._error = error
                self._changed.notify_all()

    @property
    def ended(self) -> int:
        """How many tasks have ended here, found in the cache or not."""
        return self.compiled + self.cached

    @property
    def mean_s(self) -> float:
        """A worker's mean time for a task that has ended here, seconds; a typical one before the first has ended."""
        return self.busy_s / self.ended if self.ended else TYPICAL_S

    @property
    def compile_s(self) -> float:
        """A worker's mean time for a kernel that was not in the cache; 0 before the first has ended."""
        return self.compiling_s / self.compiled if self.compiled else 0.0

    def _new(self, tasks: Iterable[CompileTask]) -> list[CompileTask]:
        return [task for task in tasks if key_of(task) not in self.results and key_of(task) not in self._queue.taken]

    def prefetch(self, tasks: Iterable[CompileTask]) -> None:
        """Compiles these tasks while no caller waits for others. Replaces earlier prefetch tasks that have not
        begun."""
        with self._changed:
            self._queue.prefetch(self._new(tasks))

    def compile(
        self,
        tasks: Iterable[CompileTask],
        advance: Callable[[int], None],
        until: float = float("inf"),
        look: Callable[[], None] = lambda: None,
        then: Iterable[CompileTask] = (),
    ) -> bool:
        """Compiles tasks and waits for them. Returns False if ``time.monotonic()`` reaches ``until`` first; tasks that
        have not begun are then dropped. Only one thread may wait at a time.

        advance: called with the number of newly completed tasks.
        look:    called a few times a second; it may raise to end the wait.
        then:    what idle workers compile meanwhile, as by ``prefetch``.
        Raises what the pool or ``on_result`` raised in the service's thread.
        """
        tasks = list(tasks)
        keys = {key_of(task) for task in tasks}
        with self._changed:
            self._missing = keys - self.results.keys()
            # A prefetch task may be among these tasks and must not be compiled twice.
            self._queue.prefetch(())
            self._queue.submit(self._new(tasks))
            self._queue.prefetch(task for task in self._new(then) if key_of(task) not in keys)
            seen = 0
            while True:
                done = len(keys) - len(self._missing)
                if done > seen:
                    advance(done - seen)
                    seen = done
                if self._error is not None:
                    raise self._error
                if done == len(keys):
                    return True
                look()
                left = until - time.monotonic()
                if left <= 0:
                    self._queue.drop()
                    return False
                self._changed.wait(min(left, LOOK_S))
