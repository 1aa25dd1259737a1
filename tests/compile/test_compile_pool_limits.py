"""Limits of the compile pool: compiles that hang, wait or eat memory, and how long each may take."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import multiprocess
import pytest
from multiprocess import forkserver
from pool_tasks import LONG_S, SM_90, broken_task, failed_alone, good_tasks, pool_in, run, until
from process_samples import ends

from gemm_tuner.compile import compile_pool, pool_worker
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.records import Status
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.system import memory
from gemm_tuner.system.waiting import look_at

HANGS = "time.sleep(600)"


def test_a_compile_that_hangs_is_killed_with_what_it_started(tmp_path: Path, known: Path) -> None:
    """Its time is over when it has started a process, however long that took."""
    child = (
        f"open({str(tmp_path / 'half')!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); "
        f"os.rename({str(tmp_path / 'half')!r}, {str(tmp_path / 'child')!r}); time.sleep(600)"
    )
    tasks = [broken_task(tmp_path, calls=child), *good_tasks(tmp_path)]
    with pool_in(tmp_path, known) as pool, ThreadPoolExecutor() as thread:
        answers = thread.submit(lambda: {result.name: result for _, result in pool.run(tasks)})
        until(tmp_path / "child", answers)
        (at_it,) = (w for w in list(pool._workers) if str(w.process.pid) == (tmp_path / "pid").read_text())
        at_it.deadline -= LONG_S
        result = failed_alone(answers.result())
    assert result.status == Status.COMPILE_TIMEOUT and result.message == f"not compiled within {LONG_S:g} s"
    for file in ("pid", "child"):
        assert ends(int((tmp_path / file).read_text()))


def test_a_compile_that_waits_for_a_core_has_more_time(tmp_path: Path) -> None:
    """Its deadline is over long before it ends; it has not had the CPU time of its limit."""
    went_on = "signal.signal(signal.SIGUSR1, lambda *_: sys.exit('it went on'))"
    task = broken_task(tmp_path, calls=f"{went_on}; os.rename({str(tmp_path / 'pid')!r}, {str(tmp_path / 'busy')!r}); "
                       "sum(0 for _ in iter(int, 1))")  # fmt: skip
    with pool_in(tmp_path, workers=1) as pool, ThreadPoolExecutor() as thread:
        answers = thread.submit(lambda: [result for _, result in pool.run([task])])
        until(tmp_path / "busy", answers)
        (worker,) = pool._workers
        while not worker.waits():  # from now on it never sleeps
            time.sleep(0.01)
        passed = worker.deadline = worker.deadline - 2 * LONG_S
        while worker.deadline == passed:
            assert not answers.done(), answers.result()
            time.sleep(0.01)
        os.kill(worker.process.pid, signal.SIGUSR1)
        assert [result.message for result in answers.result()] == ["the compiler died (exit 1)"]


def test_a_compile_that_has_had_its_cpu_time_is_ended(tmp_path: Path) -> None:
    task = broken_task(tmp_path, calls="any(iter(int, 1))")
    assert run(pool_in(tmp_path, workers=1, limit_s=0.2), [task])["broken"].status == Status.COMPILE_TIMEOUT


def test_a_compile_that_waits_for_a_disk_has_as_much_time_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After vfork() the caller waits as for a disk, until its child is gone."""
    monkeypatch.setattr(compile_pool, "LONGER_S", 0.01)
    task = broken_task(tmp_path, calls=f"__import__('ctypes').CDLL(None).vfork(); {HANGS}")
    with ThreadPoolExecutor() as thread, pool_in(tmp_path, workers=1) as pool:
        answers = thread.submit(lambda: [result for _, result in pool.run([task])])
        until(tmp_path / "pid", answers)
        (worker,) = pool._workers
        while not look_at(worker.process.pid).on_disk:
            time.sleep(0.01)
        passed = worker.deadline = worker.deadline - 2 * LONG_S
        while worker.deadline == passed:
            assert not answers.done(), answers.result()
            time.sleep(0.01)
        worker.stands_since -= LONG_S
        assert [result.status for result in answers.result(timeout=240)] == [Status.COMPILE_TIMEOUT]


def test_a_worker_that_cannot_be_killed_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is while what would tell of its end stands still."""
    monkeypatch.setattr(pool_worker, "KILL_LIMIT_S", 0.1)
    with pool_in(tmp_path, workers=1) as pool, ThreadPoolExecutor() as thread:
        answers = thread.submit(lambda: [result for _, result in pool.run([broken_task(tmp_path, calls=HANGS)])])
        until(tmp_path / "pid", answers)
        (worker,), server = pool._workers, forkserver._forkserver._forkserver_pid
        assert server is not None
        os.kill(server, signal.SIGSTOP)
        try:
            worker.deadline -= LONG_S
            assert [result.status for result in answers.result(timeout=240)] == [Status.COMPILE_TIMEOUT]
            assert worker.process not in multiprocess.active_children()
        finally:
            os.kill(server, signal.SIGCONT)


def test_a_compile_has_the_time_that_the_pool_gives(tmp_path: Path) -> None:
    task = broken_task(tmp_path, calls="time.sleep(600)")
    result = run(pool_in(tmp_path, workers=1, limit_s=0.2), [task])["broken"]
    assert result.status == Status.COMPILE_TIMEOUT and result.message == "not compiled within 0.2 s"


@pytest.mark.parametrize("eats", ["bytearray(2**40)", "[bytearray(2**26) for _ in range(40)]"])
def test_a_compile_that_eats_memory_costs_that_config_only(tmp_path: Path, known: Path, eats: str) -> None:
    paths = known, tmp_path / "log.txt", tmp_path, LONG_S
    pool = CompilePool(LANGUAGE, SM_90, 1, *paths, memory_bytes=memory.LEAST_BYTES // 2)
    result = failed_alone(run(pool, [broken_task(tmp_path, calls=eats), *good_tasks(tmp_path)]))
    assert result.status == Status.COMPILE_ERROR and result.message.startswith("MemoryError")


def test_a_worker_may_take_its_share_of_the_machine() -> None:
    shares = [memory.share_bytes(workers) for workers in (1, 16, 10_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] <= memory.MOST_BYTES and shares[-1] == memory.LEAST_BYTES


@pytest.mark.parametrize(
    ("seconds", "limit_s"),
    [
        ([], LONG_S),
        ([0.1] * 19, LONG_S),
        ([0.1] * 20, 30.0),  # 30 x 0.1 s is less than the least
        ([1.5] * 20, 45.0),
        ([9.0] * 20, 270.0),
        ([40.0] * 20, LONG_S),
        ([9.0] * 5000 + [1.5] * 200, 45.0),  # the latest count
    ],
)
def test_the_limit_follows_what_compiles_take(seconds: list[float], limit_s: float, tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    pool._seconds[""].extend(seconds)
    assert pool.limit() == limit_s
