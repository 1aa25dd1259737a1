"""The compile pool with real workers, and scripts that fail, hang and die in them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pool_tasks import BROKEN, OTHERS, PROBLEM, broken_task, failed_alone, good_tasks, pool_in, run, until

from gemm_tuner.compile.compile_tasks import support_task
from gemm_tuner.compile.task_queue import TaskQueue
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import Status
from gemm_tuner.core.script import Script, text_sha


def test_good_kernels_compile_once_and_then_come_from_the_cache(tmp_path: Path) -> None:
    first = run(pool_in(tmp_path), good_tasks(tmp_path))
    again = run(pool_in(tmp_path, workers=1), good_tasks(tmp_path))
    for name, result in first.items():
        assert result.status == Status.OK and not result.cached and result.registers > 0 and result.seconds > 0
        assert again[name].cached and again[name].binary_hash == result.binary_hash
    assert len({result.binary_hash for result in first.values()}) == len(OTHERS)


def test_as_many_kernels_compile_at_once_as_there_are_workers(tmp_path: Path) -> None:
    """Each of three waits until the others have begun."""
    names, tasks = ("one", "two", "three"), []
    for name in names:
        others = [str(tmp_path / other) for other in names if other != name]
        calls = f"any(iter(lambda: all(map(os.path.exists, {others})), True)); raise ValueError('all are there')"
        text = BROKEN.format(kernel="pass", calls=calls, pid_file=str(tmp_path / name)).replace("broken", name)
        script = Script(name, text_sha(text), text_sha(text))
        (tmp_path / script.file).write_text(text, encoding="utf-8")
        tasks.append(CompileTask(script, name, "s", PROBLEM))
    found = run(pool_in(tmp_path, workers=3), tasks)
    assert {result.message for result in found.values()} == {"ValueError: all are there"}


def test_an_error_in_calls_costs_that_config_only(tmp_path: Path, known: Path) -> None:
    task = broken_task(tmp_path, calls="raise RuntimeError('calls went wrong')")
    result = failed_alone(run(pool_in(tmp_path, known, workers=1), [task, *good_tasks(tmp_path)]))
    assert result.status == Status.COMPILE_ERROR and result.message == "RuntimeError: calls went wrong"


def test_a_kernel_that_does_not_compile_says_why(tmp_path: Path, known: Path) -> None:
    task = broken_task(tmp_path, kernel="not_a_name(pointer)")
    result = failed_alone(run(pool_in(tmp_path, known, workers=1), [task, *good_tasks(tmp_path)]))
    assert result.status == Status.COMPILE_ERROR and "not_a_name" in result.message


def test_a_script_that_is_not_there_is_a_compile_error(tmp_path: Path, known: Path) -> None:
    task = CompileTask(Script("absent", "text", "kernels"), "broken", "s", PROBLEM)
    result = failed_alone(run(pool_in(tmp_path, known, workers=1), [task, *good_tasks(tmp_path)]))
    assert result.status == Status.COMPILE_ERROR and "absent_text.py" in result.message


def test_a_script_that_is_not_what_its_name_says_is_a_compile_error(tmp_path: Path, known: Path) -> None:
    """Its binaries would be stored for the text that the task names."""
    task = broken_task(tmp_path)
    with (tmp_path / task.script.file).open("a") as stream:
        stream.write("\n")
    result = failed_alone(run(pool_in(tmp_path, known, workers=1), [task, *good_tasks(tmp_path)]))
    assert result.status == Status.COMPILE_ERROR and "has been changed" in result.message


def test_a_cache_that_cannot_be_written_is_no_fault_of_a_kernel(tmp_path: Path) -> None:
    """Here a limit on the size of files stands for the full disk."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
    pool = pool_in(tmp_path, workers=1)
    with pool, pytest.raises(EnvironmentFault, match=r"compiled kernels cannot be written.*free some space"):
        list(pool.run([broken_task(tmp_path, calls=limit)]))


def test_a_queue_that_is_closed_ends_the_wait_for_a_compile(tmp_path: Path) -> None:
    """However the queue was made: a run that ends must not wait for a compile's time limit."""
    queue = TaskQueue([broken_task(tmp_path, calls="time.sleep(600)")])
    with pool_in(tmp_path, workers=1) as pool, ThreadPoolExecutor() as thread:
        answers = thread.submit(lambda: list(pool.run(queue)))
        until(tmp_path / "pid", answers)
        queue.close()
        assert answers.result() == []  # no COMPILE_TIMEOUT: it was not waited for


def test_no_torch_and_no_gpu_in_a_worker(tmp_path: Path) -> None:
    """Not even where a backend asks for torch: what it gets has no file."""
    calls = (
        'import torch; raise RuntimeError(f\'torch file {getattr(torch, "__file__", None)}, '
        'cuda {any("libcuda" in line for line in open("/proc/self/maps"))}\')'
    )
    result = run(pool_in(tmp_path, workers=1), [broken_task(tmp_path, calls=calls)])["broken"]
    assert result.message == "RuntimeError: torch file None, cuda False"


def test_the_kernels_of_the_measurement_compile(tmp_path: Path) -> None:
    (task,) = good_tasks(tmp_path)[:1]
    assert run(pool_in(tmp_path, workers=1), [support_task(task)])[""].status == Status.OK


def test_nothing_to_compile_starts_nothing(tmp_path: Path) -> None:
    with pool_in(tmp_path) as pool:
        assert list(pool.run([])) == []
        assert pool._workers == []
    assert not (tmp_path / "log.txt").exists() and os.getpgrp() == os.getpgid(0)
