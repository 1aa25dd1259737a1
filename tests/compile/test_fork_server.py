"""The server that compile workers are forked from: what it imports, how it ends, and who waits for it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from multiprocess import forkserver
from multiprocess import process as process_module
from pool_tasks import ROOT
from process_samples import ends
from waits import wait_until

from gemm_tuner.compile import fork_server

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
