"""A priority queue of compile tasks."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable

from gemm_tuner.core.language import CompileTask

TaskKey = tuple[str, str, str]  # (Script.kernel_sha, kernel symbol, specialization) identifies a binary


def key_of(task: CompileTask) -> TaskKey:
    """Identifies the task's binary; the measurement's own kernels have no script."""
    return task.script.kernel_sha if task.script else "", task.name, task.specialization


class TaskQueue:
    """Waiting tasks: submitted ones first, then those to prefetch. Thread-safe.

    stays_open: the queue ends when it is closed; otherwise it ends when it is empty.
    taken:      keys of the tasks that workers have taken so far.
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
        """Sets the tasks that workers take when no submitted task waits; replaces earlier ones."""
        with self._changed:
            self._likely = deque(tasks)
            self._changed.notify()

    def drop(self) -> None:
        """Removes all waiting tasks; they may be submitted again."""
        with self._changed:
            self.taken -= {key_of(task) for task in (*self._submitted, *self._likely)}
            self._submitted.clear()
            self._likely.clear()

    def requeue(self, task: CompileTask) -> None:
        """Puts back a task that was taken, before all others."""
        with self._changed:
            self._submitted.appendleft(task)
            self._changed.notify()

    def close(self) -> None:
        """Removes all waiting tasks and ends the queue, without waiting for running compilations."""
        self.drop()
        with self._changed:
            self.open, self.closed = False, True
            self._changed.notify()

    def take(self, fits: Callable[[CompileTask], bool] = lambda task: True) -> CompileTask | None:
        """The next task that ``fits`` the worker that asks; None if there is none."""
        with self._changed:
            for waiting in (self._submitted, self._likely):
                for place, task in enumerate(waiting):
                    if fits(task):
                        del waiting[place]
                        self.taken.add(key_of(task))
                        return task
            return None

    def first(self, fits: Callable[[CompileTask], bool]) -> CompileTask | None:
        """The task that ``take`` would return, which goes on waiting."""
        with self._changed:
            return next(filter(fits, (*self._submitted, *self._likely)), None)

    def remove(self, task: CompileTask) -> bool:
        """Takes a task that needs no worker any more. False if it does not wait."""
        return self.take(lambda one: key_of(one) == key_of(task)) is not None

    def counts(self, sort: Callable[[CompileTask], Hashable]) -> Counter[Hashable]:
        """How many waiting tasks there are of each sort."""
        with self._changed:
            return Counter(map(sort, (*self._submitted, *self._likely)))

    def wait(self) -> bool:
        """Waits for a task; False if the queue has ended."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._submitted or self._likely or not self.open))
            return bool(self._submitted or self._likely)
