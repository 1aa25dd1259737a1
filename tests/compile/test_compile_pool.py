"""The compile pool with real workers, and scripts that fail, hang and die in them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import multiprocess
import pytest
from multiprocess import forkserver
from process_samples import alive, ends

from gemm_tuner.compile import compile_pool, fork_server
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_tasks import support_task
from gemm_tuner.compile.task_queue import TaskQueue
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.core.script import Script, text_sha
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.specialization import specialization
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.source import codegen
from gemm_tuner.system import memory
from gemm_tuner.system.waiting import look_at

ROOT = Path(__file__).resolve().parents[2]
SM_90 = Target("cuda", "sm_90", 32, Architecture("wgmma", tma=True))
PROBLEM = GemmProblem(64, 64, 64)
GOOD = KernelConfig("gemm_tile", 16, 16, 16, 1, 1, 1, 2)
# A limit that no compile here comes to, however busy the machine is.
LONG_S = 1000.0
HANGS = "time.sleep(600)"
OTHERS = tuple(replace(GOOD, BLOCK_SIZE_N=n) for n in (16, 32, 64))
# A script is loaded as the generated ones are: CONFIGS, scratch and calls.
BROKEN = """
import os, signal, subprocess, sys, time
import triton

@triton.jit
def kernel(pointer):
    {kernel}

CONFIGS = {{"broken": {{"binary": "broken"}}}}

def scratch(config, size, num_sms):
    return 0, 0

def calls(config, size, operands, scratch, num_sms):
    with open({pid_file!r}, "w") as stream:
        stream.write(str(os.getpid()))
    {calls}
    return [("kernel", kernel, (1,), (operands.a,), {{}})]
"""


def good_tasks(folder: Path) -> list[CompileTask]:
    script = codegen.write_script(ROOT / "templates", folder, "gemm_tile", PROBLEM, OTHERS, SM_90)
    return [CompileTask(script, c.kernel_symbol, specialization(PROBLEM, c, SM_90), PROBLEM) for c in OTHERS]


def broken_task(folder: Path, *, kernel: str = "pass", calls: str = "pass") -> CompileTask:
    text = BROKEN.format(kernel=kernel, calls=calls, pid_file=str(folder / "pid"))
    script = Script("broken", text_sha(text), text_sha(text))
    (folder / script.file).write_text(text, encoding="utf-8")
    return CompileTask(script, "broken", "s", PROBLEM)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has what the good tasks compile to."""
    folder = tmp_path_factory.mktemp("known")
    run(pool_in(folder, workers=1), good_tasks(folder))
    return folder / "cache"


def pool_in(folder: Path, cache: Path | None = None, *, workers: int = 2, limit_s: float = LONG_S) -> CompilePool:
    return CompilePool(
        LANGUAGE, SM_90, workers, cache or folder / "cache", folder / "log.txt", folder, limit_s, kind="gemm"
    )


def run(pool: CompilePool, tasks: list[CompileTask]) -> dict[str, CompileResult]:
    """All answers by name; every task is answered once."""
    with pool:
        answers = list(pool.run(tasks))
    assert sorted(task.name for task, _ in answers) == sorted(task.name for task in tasks)
    assert all(result.name == task.name for task, result in answers)
    return {result.name: result for _, result in answers}


def failed_alone(results: dict[str, CompileResult]) -> CompileResult:
    """The broken script's result, after checking that all others compiled."""
    assert all(results[c.kernel_symbol].status == Status.OK for c in OTHERS), results
    return results["broken"]


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


def until(there: Path, answers: Future[Any]) -> None:
    """Waits for a file, which must be whole as soon as it is there, while the pool is at work."""
    while not there.exists():
        assert not answers.done(), answers.result()
        time.sleep(0.01)


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
    monkeypatch.setattr(compile_pool, "KILL_LIMIT_S", 0.1)
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
    compile_pool.begin(LANGUAGE, "")
    server = forkserver._forkserver._forkserver_pid
    note = f"open({str(tmp_path / 'parent')!r}, 'w').write(str(os.getppid()))"
    run(pool_in(tmp_path, known, workers=1), [broken_task(tmp_path, calls=note)])
    assert server is not None and (tmp_path / "parent").read_text() == str(server)


FORKED = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})

def work(answers):
    answers.send(("gemm_tuner.compile.own_group" in sys.modules, sys.modules["random"].__file__))

if __name__ == "__main__":
    import multiprocess
    from gemm_tuner.compile import fork_server
    fork_server.begin(["tempfile"])
    ours, theirs = multiprocess.Pipe()
    process = fork_server.started(work, (theirs,), ["tempfile"])
    theirs.close()
    print(*ours.recv())
"""


def test_a_server_imports_from_this_package_and_not_from_the_users_folder(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "tune.py").write_text(FORKED)
    (tmp_path / "random.py").write_text("raise SystemExit('this is mine')")
    command, environ = [sys.executable, str(tmp_path / "scripts" / "tune.py")], dict(os.environ)
    environ.pop("PYTHONPATH", "")
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ)
    assert done.stdout.split() == ["True", random.__file__], done.stderr


def test_a_start_changes_no_variable_that_another_thread_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever copies os.environ while a variable is deleted from it gets a KeyError."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(forkserver._forkserver, "_preload_modules", forkserver._forkserver._preload_modules)
    told = [sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))"]
    seen: list[tuple[str | None, str]] = []

    def look() -> None:
        child = subprocess.run(told, capture_output=True, text=True)
        seen.append((os.environ.get("PYTHONPATH"), child.stdout.strip()))

    monkeypatch.setattr(forkserver, "ensure_running", look)
    fork_server.begin([])
    look()
    assert seen == [(None, str(ROOT)), (None, "None")]


def test_a_worker_dies_with_the_run_whatever_it_is_at(tmp_path: Path) -> None:
    """The whole tuner is killed while a compile hangs."""
    script = f"""
import sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests" / "compile"), str(ROOT / "tests" / "helpers")]!r}
from pathlib import Path
from test_compile_pool import broken_task, pool_in
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
sys.path[:0] = {[str(ROOT), str(ROOT / "tests" / "compile"), str(ROOT / "tests" / "helpers")]!r}
from pathlib import Path
from test_compile_pool import good_tasks, pool_in
folder = Path({str(tmp_path)!r})
with pool_in(folder, Path({str(known)!r}), workers=1) as pool:
    print([result.status.value for _, result in pool.run(good_tasks(folder))])
"""
    environ = {**os.environ, "TMPDIR": str(long)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ)
    assert done.stdout.split() == ["['ok',", "'ok',", "'ok']"], done.stderr


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


def test_a_cache_that_cannot_be_written_is_no_fault_of_a_kernel(tmp_path: Path) -> None:
    """Here a limit on the size of files stands for the full disk."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
    pool = pool_in(tmp_path, workers=1)
    with pool, pytest.raises(EnvironmentFault, match=r"compiled kernels cannot be written.*free some space"):
        list(pool.run([broken_task(tmp_path, calls=limit)]))


def test_a_pool_is_used_again_after_a_death_and_leaves_no_worker(tmp_path: Path, known: Path) -> None:
    tasks = good_tasks(tmp_path)
    with pool_in(tmp_path, known) as pool:
        first = list(pool.run([broken_task(tmp_path, calls="os._exit(9)"), tasks[0], tasks[1]]))
        second = list(pool.run(tasks))
        pids = [worker.process.pid for worker in pool._workers]
        assert pids and all(map(alive, pids))
    assert len(first) == 3 and [result.status for _, result in second] == [Status.OK] * 3
    assert all(map(ends, pids))


def test_a_queue_that_is_closed_ends_the_wait_for_a_compile(tmp_path: Path) -> None:
    """However the queue was made: a run that ends must not wait for a compile's time limit."""
    queue = TaskQueue([broken_task(tmp_path, calls="time.sleep(600)")])
    with pool_in(tmp_path, workers=1) as pool, ThreadPoolExecutor() as thread:
        answers = thread.submit(lambda: list(pool.run(queue)))
        until(tmp_path / "pid", answers)
        queue.close()
        assert answers.result() == []  # no COMPILE_TIMEOUT: it was not waited for


def test_workers_end_when_the_run_is_left_by_an_error(tmp_path: Path, known: Path) -> None:
    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt), pool_in(tmp_path, known) as pool:
        for _ in pool.run(good_tasks(tmp_path)):
            pids = [worker.process.pid for worker in pool._workers]
            raise KeyboardInterrupt
    assert pids and all(map(ends, pids))


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


def test_workers_that_cannot_start_are_a_fault_of_the_environment(tmp_path: Path) -> None:
    nowhere = Target("no_such_backend", "x", 32, Architecture("mma"))
    pool = CompilePool(LANGUAGE, nowhere, 1, tmp_path / "no\0folder", tmp_path / "log.txt", tmp_path)
    with pool, pytest.raises(EnvironmentFault, match="compile worker ended at its start, exit status 1"):
        list(pool.run(good_tasks(tmp_path)))


def test_nothing_to_compile_starts_nothing(tmp_path: Path) -> None:
    with pool_in(tmp_path) as pool:
        assert list(pool.run([])) == []
        assert pool._workers == []
    assert not (tmp_path / "log.txt").exists() and os.getpgrp() == os.getpgid(0)


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
