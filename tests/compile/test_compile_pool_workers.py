"""Workers of the compile pool and their server: how they start, die and end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from multiprocess import forkserver
from multiprocess import process as process_module
from pool_tasks import LONG_S, ROOT, broken_task, failed_alone, good_tasks, pool_in, run
from process_samples import alive, ends

from gemm_tuner.compile import compile_worker, fork_server, worker_servers
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.pool_worker import Worker
from gemm_tuner.compile.task_queue import TaskQueue, key_of
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import CompileTask, language_of
from gemm_tuner.core.records import Status, Target
from gemm_tuner.languages.together import Together
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


OF_VARIABLES = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})

def work(answers):
    answers.send((os.getppid(), os.environ.get("ARCH_OF_TEST")))

if __name__ == "__main__":
    import multiprocess
    from gemm_tuner.compile import fork_server
    one, other = {{"ARCH_OF_TEST": "one"}}, {{"ARCH_OF_TEST": "other"}}
    fork_server.begin(["json"], one)
    for variables in ({{}}, one, other, one, {{}}):
        ours, theirs = multiprocess.Pipe()
        process = fork_server.started(work, (theirs,), ["json"], variables)
        print(*ours.recv(), os.environ.get("ARCH_OF_TEST"))
        process.join()
        print(process.exitcode)
"""


def test_a_compiler_that_must_know_its_architecture_has_a_server_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tune.py").write_text(OF_VARIABLES)
    done = subprocess.run([sys.executable, str(tmp_path / "tune.py")], capture_output=True, text=True, cwd=tmp_path)
    told = [line.split() for line in done.stdout.splitlines()]
    plain, one, other, again, last = told[::2]
    assert told[1::2] == [["0"]] * 5, done.stderr
    assert [named for _, named, _ in (plain, one, other, again, last)] == ["None", "one", "other", "one", "None"]
    assert (one[0], plain[0]) == (again[0], last[0]) and len({plain[0], one[0], other[0]}) == 3
    assert {ours for _, _, ours in (plain, one, other, again, last)} == {"None"}, "the caller's environment stays"


TALKATIVE = """
import atexit, os, sys

class Left:
    def __del__(self, write=os.write):
        write(2, b"leaked")

LEFT = Left()
atexit.register(print, "ended")
print("imported")
"""


USES_IT = f"""
import sys
sys.path.append({str(ROOT)!r})
from gemm_tuner.compile import fork_server
if __name__ == "__main__":
    fork_server.started(print, ("compiled",), ["talkative"]).join()
"""


def test_a_server_is_not_taken_apart_when_it_ends(tmp_path: Path) -> None:
    """Else libraries of compilers tell the user what they would have freed."""
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    (tmp_path / "tune.py").write_text(USES_IT)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    # Its streams are the server's too: they end with that.
    done = subprocess.run([sys.executable, str(tmp_path / "tune.py")], capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "imported\ncompiled\nended\n", "")


def test_a_server_that_still_imports_ends_with_the_command(tmp_path: Path) -> None:
    """Else what a finished command printed into a pipe would come to no end for seconds."""
    (tmp_path / "never_done.py").write_text("import threading\nthreading.Event().wait(90)\n")
    begin = f"import sys; sys.path.append({str(ROOT)!r})\nfrom gemm_tuner.compile import fork_server\n"
    pid = "from multiprocess import forkserver\nprint(forkserver._forkserver._forkserver_pid)\n"
    (tmp_path / "tune.py").write_text(f"{begin}fork_server.begin(['never_done'])\n{pid}")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(tmp_path / "tune.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == 0 and ends(int(done.stdout))


def test_a_start_changes_no_variable_that_another_thread_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever copies os.environ while a variable is deleted from it gets a KeyError."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(forkserver._forkserver, "_preload_modules", forkserver._forkserver._preload_modules)
    told = [sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))"]
    seen: list[tuple[str | None, str]] = []

    def look() -> None:
        child = subprocess.run(told, capture_output=True, text=True)
        seen.append((os.environ.get("PYTHONPATH"), child.stdout.strip()))

    monkeypatch.setattr(forkserver._forkserver, "ensure_running", look)
    fork_server.begin([])
    look()
    assert seen == [(None, str(ROOT)), (None, "None")]


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


def wait_until(holds: Callable[[], bool]) -> None:
    started_s = time.monotonic()
    while not holds():
        assert time.monotonic() - started_s < LONG_S
        time.sleep(0.01)


def test_a_server_that_dies_while_it_imports_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "LONGEST_IMPORT_S", float("inf"))
    (tmp_path / "imports_and_dies.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    wait_until(lambda: fork_server.is_ready(("imports_and_dies",), {"SERVER_OF_TEST": str(tmp_path)}))


def test_a_server_that_something_else_started_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a program of the user's that calls this package has one of multiprocess's own."""
    monkeypatch.setattr(fork_server, "LONGEST_IMPORT_S", float("inf"))
    server = fork_server._server({"SERVER_OF_TEST": "of another"})
    server.ensure_running()
    assert fork_server.is_ready(("json",), {"SERVER_OF_TEST": "of another"})


def test_without_a_folder_for_temporary_files_workers_are_new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    monkeypatch.delitem(process_module.current_process()._config, "tempdir", raising=False)
    variables = {"SERVER_OF_TEST": "no folder"}
    assert fork_server.is_ready(("json",), variables)
    worker = fork_server.started(os._exit, (7,), ("json",), variables)
    worker.join()
    assert worker.exitcode == 7


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
