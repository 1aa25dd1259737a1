"""The processes that tests start by forks of one that has imported torch are as those that Python starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_python
from process_samples import ends

from gemm_tuner.system.processes import MARK, guarded_command, processes_with_variable

SCRIPT = """
import os, sys
print(__name__, __file__, sys.argv, sys.path[:2], os.getcwd(), os.environ["OWN"], sys.stdin.read())
print(os.getsid(0) == os.getpid())
print(open("/proc/self/cmdline").read().split("\\0")[1:4], "OWN=1" in open("/proc/self/environ").read().split("\\0"))
print("torch" in sys.modules, file=sys.stderr)
exec(sys.argv[1])
"""


# The session's servers; tests in this folder do without unless they say so.
SERVERS = os.environ.get(warm_python.FOLDER)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(warm_python.FOLDER, SERVERS or f"{os.getpid()}:{tmp_path}")
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
    (script.parent / "torch.py").touch()
    assert run(script, "").stderr == "False\n"


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
