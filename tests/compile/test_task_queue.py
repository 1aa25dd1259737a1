"""The queue of compile tasks: its order, and how it ends."""

from __future__ import annotations

import threading

from gemm_tuner.compile.task_queue import TaskQueue
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.script import Script
from gemm_tuner.gemm.problem import GemmProblem

SCRIPT = Script("script", "text", "kernels")
PROBLEM = GemmProblem(64, 64, 64)


def some(*names: str) -> list[CompileTask]:
    return [CompileTask(SCRIPT, name, "s", PROBLEM) for name in names]


def taken(queue: TaskQueue) -> list[str]:
    return [task.name for task in iter(queue.take, None)]


def test_submitted_tasks_come_first_and_only_the_latest_to_prefetch() -> None:
    queue = TaskQueue(some("a"), stays_open=True)
    queue.prefetch(some("x", "y"))
    queue.prefetch(some("z"))
    queue.submit(some("b"))
    assert len(queue) == 3 and taken(queue) == ["a", "b", "z"]
    assert queue.taken == {("kernels", name, "s") for name in "abz"}


def test_an_open_queue_waits_until_it_is_closed() -> None:
    queue, waited = TaskQueue(stays_open=True), list[bool]()
    thread = threading.Thread(target=lambda: waited.append(queue.wait()))
    thread.start()
    queue.close()
    thread.join(120)
    assert waited == [False] and queue.closed
    assert not TaskQueue().wait() and TaskQueue(some("a")).wait()


def test_a_closed_queue_has_nothing_left() -> None:
    queue = TaskQueue(some("a"), stays_open=True)
    queue.prefetch(some("b"))
    queue.close()
    assert taken(queue) == [] and len(queue) == 0


def test_a_task_that_is_looked_at_waits_until_it_is_removed() -> None:
    queue = TaskQueue(some("a", "b"))
    queue.prefetch(some("x"))
    a, b = some("a", "b")
    assert queue.first(lambda task: task.name in "xb") == b and queue.first(lambda task: task.name == "y") is None
    assert len(queue) == 3 and not queue.taken
    assert queue.remove(b) and not queue.remove(b)
    assert queue.first(lambda task: True) == a and taken(queue) == ["a", "x"]


def test_waiting_tasks_are_counted_by_sort() -> None:
    queue = TaskQueue(some("a1", "b1", "a2"))
    queue.prefetch(some("a3"))
    assert queue.counts(lambda task: task.name[0]) == {"a": 3, "b": 1}
    queue.take(lambda task: task.name == "a2")
    assert queue.counts(lambda task: task.name[0]) == {"a": 2, "b": 1} and len(queue) == 3
