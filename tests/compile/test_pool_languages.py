"""A compile pool of two languages: which tasks workers get, and which workers are started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pool_tasks import broken_task, pool_in
from waits import wait_until

from gemm_tuner.compile import compile_worker, fork_server
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.pool_worker import Worker
from gemm_tuner.compile.task_queue import TaskQueue, key_of
from gemm_tuner.core.language import CompileTask, language_of
from gemm_tuner.languages.together import Together
from gemm_tuner.languages.triton.language import LANGUAGE


class Answering(Worker):
    """A worker without a process."""

    def give(self, task: CompileTask, limit_s: float) -> None:
        self.task = task


def mixed_pool(folder: Path, workers: int) -> tuple[CompilePool, Callable[[str, int], list[CompileTask]]]:
    """A pool of two languages whose workers are ready at once, and a function that makes tasks of one of them."""
    pool = replace(pool_in(folder, workers=workers), language=Together(LANGUAGE, (language_of("c"),)))
    pool._start_worker = lambda name, finds: Answering(None, None, name, finds, ready=True)  # type: ignore[method-assign]
    pool._imports_of = lambda name, finds: ((), {})  # type: ignore[method-assign]
    first = broken_task(folder)

    def tasks(language: str, count: int) -> list[CompileTask]:
        assert first.script
        scripts = [replace(first.script, language=language, kernel_sha=f"{language}{at}") for at in range(count)]
        made = [replace(first, script=script) for script in scripts]
        pool._absent |= {key_of(task) for task in made}  # not in the cache
        return made

    return pool, tasks


def at_work(pool: CompilePool) -> list[str]:
    return [worker.language for worker in pool._workers if worker.task is not None]


def test_no_more_compile_at_a_time_where_there_are_several_languages(tmp_path: Path) -> None:
    """Else a language whose kernels are needed later takes the cores from the one whose kernels are waited for."""
    pool, tasks = mixed_pool(tmp_path, 4)
    queue = TaskQueue([*tasks("", 3), *tasks("c", 5)])
    for _ in range(3):
        pool._hand_out(queue)
    assert at_work(pool) == ["", "", "", "c"] and len(queue) == 4
    next(worker for worker in pool._workers if worker.task is not None).task = None
    queue.submit(tasks("", 1))
    pool._hand_out(queue)
    assert sorted(at_work(pool)) == ["", "", "c", "c"], "in the queue's order"


def test_a_server_that_still_imports_keeps_no_other_language_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To fork a worker of it takes as long as its imports, and nothing else is handed out meanwhile."""
    begun, imported = tmp_path / "begun", tmp_path / "imported"
    wait = f"while not os.path.exists({str(imported)!r}):\n    time.sleep(0.01)\n"
    (tmp_path / "imports_for_long.py").write_text(f"import os, time\nopen({str(begun)!r}, 'w').close()\n{wait}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pool, tasks = mixed_pool(tmp_path, 2)
    modules = (compile_worker.__name__, "imports_for_long")  # the first as it is of all servers of compilers
    slow = (modules, {"SERVER_OF_TEST": str(tmp_path)})
    pool._imports_of = lambda name, finds: slow if name else ((), {})  # type: ignore[method-assign]
    queue = TaskQueue([*tasks("c", 1), *tasks("", 1)])
    pool._hand_out(queue)
    wait_until(begun.exists)
    for _ in range(2):
        pool._hand_out(queue)
    assert at_work(pool) == [""]
    imported.touch()
    wait_until(lambda: fork_server.is_ready(*slow))
    for _ in range(2):
        pool._hand_out(queue)
    assert at_work(pool) == ["", "c"]


@pytest.mark.parametrize("busy", ["", "c"])
def test_no_worker_is_started_for_a_task_that_an_idle_one_will_take(tmp_path: Path, busy: str) -> None:
    pool, tasks = mixed_pool(tmp_path, 4)
    queue = TaskQueue([*tasks(busy, 4), *tasks("c" if busy == "" else "", 1)])
    for _ in range(6):
        pool._hand_out(queue)
    assert at_work(pool) == [busy] * 4 and len(queue) == 1 and len(pool._workers) == 5
