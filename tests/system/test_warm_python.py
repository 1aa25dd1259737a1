"""The processes that tests start by forks of one that has imported torch are as those that Python starts."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import foreground
import pytest
import warm_python
from process_samples import ends

from gemm_tuner.system.processes import MARK, guarded_command, processes_with_variable

SCRIPT = """
import os, sys
print(__name__, __file__, sys.argv, sys.path, os.getcwd(), os.environ["OWN"], sys.stdin.read())
print(os.getsid(0) == os.getpid())
print(open("/proc/self/cmdline").read().split("\\0")[1:4], "OWN=1" in open("/proc/self/environ").read().split("\\0"))
print("torch" in sys.modules, file=sys.stderr)
exec(sys.argv[1])
"""


@pytest.fixture(scope="module")
def servers(warm_folder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The session's servers, or own ones where the session has none."""
    return warm_folder or warm_python.started(tmp_path_factory.mktemp("servers"))


@pytest.fixture
def script(tmp_path: Path, servers: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(warm_python.FOLDER, servers)
    monkeypatch.setattr(subprocess, "Popen", warm_python.WarmPopen)
    (path := tmp_path / "script.py").write_text(SCRIPT)
    return path


def run(script: Path, code: str, **more: str) -> Any:
    env = {**os.environ, "PYTHONPATH": str(warm_python.ROOT), "OWN": "1", **more}
    return subprocess.run(
        [sys.executable, str(script), code], env=env, cwd=script.parent, input="given", capture_output=True, text=True,
        start_new_session=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "code",
    ["", "sys.exit(3)", "sys.exit('why')", "1 / 0", "os.kill(os.getpid(), 9)", "os._exit(7)", "print(1, end='')"],
)
def test_a_process_says_and_ends_as_a_cold_one(script: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warm = run(script, code)
    monkeypatch.delenv(warm_python.FOLDER)
    cold = run(script, code)
    assert warm.stderr.startswith("True\n") and cold.stderr.startswith("False\n")
    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout)
    assert warm.stderr.splitlines()[1:][-1:] == cold.stderr.splitlines()[1:][-1:]  # the error's last line


def test_what_the_imports_would_not_serve_starts_cold(script: Path) -> None:
    assert run(script, "", PYTHONHASHSEED="5").stderr == run(script, "", LC_ALL="en_US.ISO-8859-1").stderr == "False\n"
    for name in ("torch.py", "sitecustomize.py"):
        (script.parent / name).touch()
        assert run(script, "").stderr == "False\n"
        (script.parent / name).unlink()


def test_where_torch_caches_is_no_reason_to_start_cold(script: Path) -> None:
    """torch sets the variable in its own process, and all children of that have it."""
    found = run(script, f"print(os.environ[{warm_python.SET_BY_TORCH!r}])", **{warm_python.SET_BY_TORCH: "/there"})
    assert found.stderr == "True\n" and found.stdout.endswith("/there\n")


def own_servers(script: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Servers of the test, which begin sooner: without torch."""
    folder.mkdir(parents=True)
    monkeypatch.setenv(warm_python.FOLDER, warm_python.started(folder))
    monkeypatch.setenv(warm_python.LIGHT, "1")
    script.write_text("import os, sys\nprint(os.getppid(), 'pandas' in sys.modules, flush=True)\nexec(sys.argv[1])\n")


def asks(script: Path) -> tuple[warm_python.Job, socket.socket]:
    """A job, and a connection to the server where it may be asked for."""
    env = {**os.environ, "PYTHONPATH": str(warm_python.ROOT), "OWN": "1"}
    job = warm_python.Job([str(script), ""], env, str(script.parent), 0, True)
    connection = warm_python.connected(job)
    assert connection is not None
    return job, connection


def test_a_server_outlives_who_is_killed_while_asking(script: Path) -> None:
    assert run(script, "").stderr == "True\n"
    with open(os.devnull, "r+") as null:
        for is_asked in (False, True):
            job, connection = asks(script)
            with connection:
                if is_asked:
                    socket.send_fds(connection, [job.message()], [null.fileno()] * 3)
    assert run(script, "").stderr == "True\n"


def test_a_server_waits_for_nobody_who_has_not_asked_yet(script: Path) -> None:
    """As a process that is stopped between its connection and its question."""
    _, connection = asks(script)
    with connection:
        assert run(script, "").stderr == "True\n"


def test_what_proc_could_not_show_whole_starts_cold(script: Path) -> None:
    assert run(script, "", LONG="x" * warm_python.ROOM[1]).stderr == "False\n"
    assert run(script, "#" * warm_python.ROOM[0]).stderr == "False\n"


def test_a_long_path_and_servers_that_end(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server forked ends with it, what comes after that starts cold."""
    own_servers(script, monkeypatch, tmp_path / ("x" * 120))
    monkeypatch.setenv(MARK, "m2")
    waiting = subprocess.Popen(
        [sys.executable, str(script), "sys.stdin.read()"], env={**os.environ, "PYTHONPATH": str(warm_python.ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.stdin is not None and waiting.stdout is not None
    server, is_warm = waiting.stdout.readline().split()
    assert is_warm == "True" and int(server) != os.getpid()
    assert [process.pid for process in processes_with_variable(MARK, "m2")] == [waiting.pid]  # not the server
    os.kill(int(server), signal.SIGKILL)
    assert waiting.wait() != 0 and ends(waiting.pid)
    waiting.stdin.close()
    waiting.stdout.close()
    assert run(script, "").stdout == f"{os.getpid()} False\n"


def test_all_starts_cold_where_no_server_can_begin(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as here:
        here.setattr(warm_python, "ROOT", tmp_path)  # without the package that a server imports
        own_servers(script, monkeypatch, tmp_path / "own")
    for _ in range(2):
        assert run(script, "").stdout == f"{os.getpid()} False\n"


def test_servers_are_as_the_process_of_the_session_whoever_asks_first(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_servers(script, monkeypatch, tmp_path / "own")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, limits[1]))
    try:
        assert run(script, "").stdout == f"{os.getpid()} False\n"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    warm = run(script, "import resource\nprint(resource.getrlimit(resource.RLIMIT_FSIZE))").stdout.splitlines()
    assert warm[0].endswith(" True") and warm[1] == str(limits)


TAKEN_OVER = """
import numpy, resource, tempfile, time
print(numpy.random.rand(), file=sys.stderr)
print(resource.getrlimit(resource.RLIMIT_FSIZE), os.umask(0), tempfile.gettempdir(), time.localtime(0).tm_hour)
"""


def test_it_takes_over_what_a_cold_one_does(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def both(**more: str) -> tuple[str, str]:
        warm = run(script, TAKEN_OVER, **more)
        with pytest.MonkeyPatch.context() as here:
            here.delenv(warm_python.FOLDER)
            cold = run(script, TAKEN_OVER, **more)
        assert warm.returncode == 0 and warm.stdout == cold.stdout
        return tuple(warm.stderr.split())

    (is_warm, random), (_, another) = both(), both(TMPDIR=str(tmp_path), TZ="UTC-9")
    assert is_warm == "True" and random != another
    before = os.umask(0o077)
    try:
        both()
    finally:
        os.umask(before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, limits[1]))
    try:
        both()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_it_dies_with_the_process_that_asked_and_is_found_by_its_mark(script: Path) -> None:
    code = "print('up', flush=True); __import__('time').sleep(1000)"
    starter = script.with_name("starter.py")
    command = [*guarded_command([sys.executable, str(script), code])[:4], "PID", sys.executable, str(script), code]
    starter.write_text(
        f"import os, subprocess\ncommand = {command!r}\ncommand[4] = str(os.getpid())\n"
        f"child = subprocess.Popen(command, env={{**os.environ, {MARK!r}: 'm1'}}, stdin=subprocess.DEVNULL, "
        "start_new_session=True)\nchild.wait()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(warm_python.ROOT), "OWN": "1"}
    process = subprocess.Popen(
        [sys.executable, str(starter)], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    while process.stdout.readline() != "up\n":
        pass
    (child,) = processes_with_variable(MARK, "m1")
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert ends(child.pid)
    process.stdout.close()


WORKERS = """
del os.environ["PYTHONPATH"]  # as in a session of tests, which has it in sys.path alone
import psutil
from gemm_tuner.compile import fork_server
from multiprocess import forkserver
fork_server.begin(["gemm_tuner.languages.triton.worker_imports"])
server = psutil.Process(forkserver._forkserver._forkserver_pid)
print(any("libtriton" in mapped.path for mapped in server.memory_maps()))
"""


def test_the_server_of_compile_workers_is_warm_where_the_path_is_only_put(script: Path) -> None:
    done = run(script, WORKERS)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "True", done.stderr


def test_a_session_that_was_started_in_the_background_is_as_another() -> None:
    """Else nothing that the tuner starts, which takes SIGINT, would be warm."""
    before, state = signal.getsignal(signal.SIGINT), warm_python.inherited()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert warm_python.inherited() != state
        foreground.take_interrupts()
        assert warm_python.inherited() == state
        signal.signal(signal.SIGINT, lambda *_: None)  # as the tuner does
        assert warm_python.inherited() == state
    finally:
        signal.signal(signal.SIGINT, before)
