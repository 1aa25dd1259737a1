"""Workers of the compile pool: how they start, die and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from multiprocess import forkserver
from pool_tasks import LONG_S, ROOT, broken_task, failed_alone, good_tasks, pool_in, run
from process_samples import alive, ends

from gemm_tuner.compile import worker_servers
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.pool_worker import Worker
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Status, Target
from gemm_tuner.languages.triton.language import LANGUAGE


@pytest.mark.parametrize(
    ("failure", "exit_status", "workers"),
    [("os._exit(9)", 9, 1), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, 2), ("sys.exit(3)", 3, 1)],
)
def test_a_worker_that_dies_costs_that_config_only(
    tmp_path: Path, known: Path, failure: str, exit_status: int, workers: int
) -> None:
    tasks = good_tasks(tmp_path)
    tasks.insert(1, broken_task(tmp_path, calls=failure))
    result = failed_alone(run(pool_in(tmp_path, known, workers=workers), tasks))
    assert result.status == Status.COMPILE_ERROR and result.message == f"the compiler died (exit {exit_status})"
    assert 0 < result.seconds < LONG_S, "the time until it died, not its limit"


def test_workers_are_told_apart_whatever_they_do() -> None:
    """One that is replaced must not be another; to compare what they do takes the search its interpreter."""
    workers = one, other = [Worker(None, None), Worker(None, None)]
    workers.remove(other)
    assert workers[0] is one


def test_the_last_worker_may_die_too(tmp_path: Path) -> None:
    result = run(pool_in(tmp_path, workers=1), [broken_task(tmp_path, calls="os._exit(9)")])["broken"]
    assert result.status == Status.COMPILE_ERROR


def first_time_only(file: str, code: str) -> str:
    """For ``calls``: done by the first process that comes by, and not by the next."""
    return f"os.path.exists({file!r}) or (open({file!r}, 'w'), {code}, time.sleep(600))"


def test_a_worker_that_somebody_kills_costs_nothing(tmp_path: Path, known: Path) -> None:
    task = broken_task(
        tmp_path,
        kernel="not_a_name(pointer)",
        calls=first_time_only(str(tmp_path / "first"), "os.kill(os.getpid(), 9)"),
    )
    result = failed_alone(run(pool_in(tmp_path, known, workers=1), [task, *good_tasks(tmp_path)]))
    assert "not_a_name" in result.message and (tmp_path / "first").exists()


def test_workers_that_are_killed_at_their_start_cost_nothing(tmp_path: Path, known: Path) -> None:
    """As by the OOM killer: two of them, while they wait for a log that nobody reads."""
    tasks, killed, log = good_tasks(tmp_path), list[int](), tmp_path / "log.txt"
    os.mkfifo(log)
    with pool_in(tmp_path, known, workers=1) as pool, ThreadPoolExecutor() as thread:
        answers = thread.submit(lambda: list(pool.run(tasks)))
        while len(killed) < 2 and not answers.done():
            for worker in list(pool._workers):
                if worker.process.pid not in (None, *killed):
                    os.kill(worker.process.pid, signal.SIGKILL)
                    killed.append(worker.process.pid)
            time.sleep(0.01)
        reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
        assert [result.status for _, result in answers.result()] == [Status.OK] * len(tasks)
        os.close(reader)
    assert len(killed) == 2


def test_a_server_of_workers_that_is_killed_costs_nothing(tmp_path: Path, known: Path) -> None:
    """Its workers die with it; their task is done by others, of another server."""
    task = broken_task(tmp_path, calls=first_time_only(str(tmp_path / "first"), "os.kill(os.getppid(), 9)"))
    results = run(pool_in(tmp_path, known, workers=1), [task, *good_tasks(tmp_path)])
    assert failed_alone(results).status == Status.OK and (tmp_path / "first").exists()


def test_workers_are_forked_from_a_server_that_was_started_before(tmp_path: Path, known: Path) -> None:
    forkserver._forkserver._stop()
    worker_servers.begin(LANGUAGE, "")
    server = forkserver._forkserver._forkserver_pid
    note = f"open({str(tmp_path / 'parent')!r}, 'w').write(str(os.getppid()))"
    run(pool_in(tmp_path, known, workers=1), [broken_task(tmp_path, calls=note)])
    assert server is not None and (tmp_path / "parent").read_text() == str(server)


def test_workers_leave_cores_to_the_tuner(tmp_path: Path, known: Path) -> None:
    """Schedulers may weigh priorities among the processes of a session only."""
    note = f"open({str(tmp_path / 'note')!r}, 'w').write(f'{{os.getpriority(os.PRIO_PROCESS, 0)}} {{os.getsid(0)}}')"
    run(pool_in(tmp_path, known, workers=1), [broken_task(tmp_path, calls=note)])
    priority, session = map(int, (tmp_path / "note").read_text().split())
    assert priority > os.getpriority(os.PRIO_PROCESS, 0) and session == os.getsid(0)


def test_a_worker_dies_with_the_run_whatever_it_is_at(tmp_path: Path) -> None:
    """The whole tuner is killed while a compile hangs."""
    script = f"""
import sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests" / "helpers")]!r}
from pathlib import Path
from pool_tasks import broken_task, pool_in
folder = Path({str(tmp_path)!r})
with pool_in(folder, workers=1) as pool:
    list(pool.run([broken_task(folder, calls="time.sleep(600)")]))
"""
    tuner = subprocess.Popen([sys.executable, "-c", script])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert tuner.poll() is None
        time.sleep(0.01)
    tuner.kill()
    tuner.wait()
    assert ends(int((tmp_path / "pid").read_text()))


def test_without_a_server_workers_are_new_processes(tmp_path: Path, known: Path) -> None:
    """Where the path of its socket would be too long."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    script = f"""
import sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests" / "helpers")]!r}
from pathlib import Path
from pool_tasks import good_tasks, pool_in
folder = Path({str(tmp_path)!r})
with pool_in(folder, Path({str(known)!r}), workers=1) as pool:
    print([result.status.value for _, result in pool.run(good_tasks(folder))])
"""
    environ = {**os.environ, "TMPDIR": str(long)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ)
    assert done.stdout.split() == ["['ok',", "'ok',", "'ok']"], done.stderr


def test_a_pool_is_used_again_after_a_death_and_leaves_no_worker(tmp_path: Path, known: Path) -> None:
    tasks = good_tasks(tmp_path)
    with pool_in(tmp_path, known) as pool:
        first = list(pool.run([broken_task(tmp_path, calls="os._exit(9)"), tasks[0], tasks[1]]))
        second = list(pool.run(tasks))
        pids = [worker.process.pid for worker in pool._workers]
        assert pids and all(map(alive, pids))
    assert len(first) == 3 and [result.status for _, result in second] == [Status.OK] * 3
    assert all(map(ends, pids))


def test_workers_end_when_the_run_is_left_by_an_error(tmp_path: Path, known: Path) -> None:
    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt), pool_in(tmp_path, known) as pool:
        for _ in pool.run(good_tasks(tmp_path)):
            pids = [worker.process.pid for worker in pool._workers]
            raise KeyboardInterrupt
    assert pids and all(map(ends, pids))


def test_workers_that_cannot_start_are_a_fault_of_the_environment(tmp_path: Path) -> None:
    nowhere = Target("no_such_backend", "x", 32, Architecture("mma"))
    pool = CompilePool(LANGUAGE, nowhere, 1, tmp_path / "no\0folder", tmp_path / "log.txt", tmp_path)
    with pool, pytest.raises(EnvironmentFault, match="compile worker ended at its start, exit status 1"):
        list(pool.run(good_tasks(tmp_path)))
