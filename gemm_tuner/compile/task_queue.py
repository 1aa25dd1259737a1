"""The tasks that wait for a compile worker, by priority."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from gemm_tuner.core.language import CompileTask

TaskKey = tuple[str, str, str]  # Script.kernel_sha, kernel symbol, specialization: one binary, in any folder


def key_of(task: CompileTask) -> TaskKey:
    """What the task's binary is made from; the measurement's own kernels have no script."""
    return task.script.kernel_sha if task.script else "", task.name, task.specialization


class TaskQueue:
    """Tasks that wait for a worker: submitted ones first, then those to prefetch. Safe to use from any thread.

    An open queue ends when it is closed, any other when it is empty. taken: the keys of what workers have taken so far.
    """

    def __init__(self, tasks: Iterable[CompileTask] = (), *, stays_open: bool = False) -> None:
        self._submitted, self._likely = deque(tasks), deque[CompileTask]()
        self._changed = threading.Condition()
        self.taken: set[TaskKey] = set()
        self.open, self.closed = stays_open, False

    def __len__(self) -> int:
        with self._changed:
            return len(self._submitted) + len(self._likely)

    def submit(self, tasks: Iterable[CompileTask]) -> None:
        with self._changed:
            self._submitted.extend(tasks)
            self._changed.notify()

    def prefetch(self, tasks: Iterable[CompileTask]) -> None:
        """What workers take up when nothing is submitted; replaces what was to be prefetched before."""
        with self._changed:
            self._likely = deque(tasks)
            self._changed.notify()

    def drop(self) -> None:
        """Drops what waits; it may be submitted again."""
        with self._changed:
            self.taken -= {key_of(task) for task in (*self._submitted, *self._likely)}
            self._submitted.clear()
            self._likely.clear()

    def requeue(self, task: CompileTask) -> None:
        """Puts a task that was taken before all others."""
        with self._changed:
            self._submitted.appendleft(task)
            self._changed.notify()

    def close(self) -> None:
        """Drops what waits and ends the queue; compiles that run are not waited for."""
        self.drop()
        with self._changed:
            self.open, self.closed = False, True
            self._changed.notify()

    def take(self) -> CompileTask | None:
        with self._changed:
            waiting = self._submitted or self._likely
            if not waiting:
                return None
            task = waiting.popleft()
            self.taken.add(key_of(task))
            return task

    def wait(self) -> bool:
        """Waits for a task; False when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._submitted or self._likely or not self.open))
            return bool(self._submitted or self._likely)
