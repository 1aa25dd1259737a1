"""Processes that are watched: they end, they are killed with all they started, and they say why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from process_samples import ends
from samples import ROOT

from gemm_tuner.system import processes
from gemm_tuner.system.processes import Ended, guarded_command, run_watched

# Starts a grandchild that outlives it in a session of its own, as nsys does, tells its id, and goes on as told.
PARENT = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
if sys.argv[2] == "stay":
    time.sleep(600)
"""


def run(tmp_path: Path, code: str, *arguments: str, stall_limit_s: float = 1000.0, heartbeat: object = None) -> Ended:
    beat = heartbeat or (lambda: 0)
    return run_watched(
        [sys.executable, "-c", code, *arguments],
        dict(os.environ),
        tmp_path / "log",
        heartbeat=beat,  # type: ignore[arg-type]
        stall_limit_s=stall_limit_s,
    )


@pytest.mark.parametrize(
    ("code", "status", "how"),
    [
        ("pass", 0, "exit status 0"),
        ("raise SystemExit(75)", 75, "exit status 75"),
        ("import os; os.kill(os.getpid(), 11)", -11, "signal SIGSEGV"),
    ],
)
def test_the_exit_status(tmp_path: Path, code: str, status: int, how: str) -> None:
    ended = run(tmp_path, code)
    assert (ended.exit_status, ended.stalled, ended.how(), ended.log_tail()) == (status, False, how, "")


def test_the_log_holds_both_streams_and_its_tail_is_one_line(tmp_path: Path) -> None:
    code = "import sys; print(*range(100), sep='\\n', flush=True); sys.stderr.write('\\n  last words \\n')"
    ended = run(tmp_path, code)
    assert ended.log_tail() == " | ".join([*map(str, range(93, 100)), "last words"])
    again = run(tmp_path, "print('more')")
    assert again.log_tail().endswith("last words | more")


def test_a_huge_log_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    ended = run(tmp_path, "import sys; sys.stdout.buffer.write(b'x' * 10**6 + b'\\n\\xff\\xfe end\\n')")
    assert ended.log_tail().endswith("| \ufffd\ufffd end")
    assert len(ended.log_tail()) < 70_000


def test_a_stalled_process_is_killed_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def moves_until_noted() -> object:
        return "noted" if note.exists() and note.read_text() else object()

    ended = run(tmp_path, PARENT, str(note), "stay", stall_limit_s=0.3, heartbeat=moves_until_noted)
    assert (ended.stalled, ended.exit_status, ended.how()) == (True, -9, "nothing moved for 0.3 s")
    assert ends(int(note.read_text()))


def test_a_grandchild_does_not_outlive_a_process_that_ended_well(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    ended = run(tmp_path, PARENT, str(note), "go")
    assert (ended.exit_status, ended.stalled) == (0, False)
    assert ends(int(note.read_text()))


def test_an_exception_kills_the_group(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def interrupted() -> object:
        if note.exists() and note.read_text():
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, PARENT, str(note), "stay", heartbeat=interrupted)
    assert ends(int(note.read_text()))


def test_a_process_that_moves_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TICK_S", 0.01)
    beats = count()
    ended = run(tmp_path, "import time; time.sleep(0.5)", stall_limit_s=0.0, heartbeat=lambda: next(beats))
    assert (ended.stalled, ended.exit_status) == (False, 0)


def test_the_last_beat_comes_after_the_end(tmp_path: Path) -> None:
    """What a process wrote just before its end is read too."""
    note, seen = tmp_path / "note", []
    run(tmp_path, "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('x')", str(note),
        heartbeat=lambda: seen.append(note.exists()))  # fmt: skip
    assert seen[-1]


START = """
import sys
from pathlib import Path
from gemm_tuner.measure import device
sys.path.insert(0, sys.argv[1])
device.look()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=str)
def test_what_looks_for_gpus_ends_with_the_tuner(tmp_path: Path, number: signal.Signals) -> None:
    """At the start of a run, when its handlers of signals are not there yet. The import of torch takes seconds."""
    note = tmp_path / "pid"
    (tmp_path / "torch.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(note)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    tuner = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)], cwd=ROOT, env=env, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's jobs may ignore it
    )  # fmt: skip
    try:
        while not (note.exists() and note.read_text()):
            assert tuner.poll() is None
            time.sleep(0.01)
        tuner.send_signal(number)
        tuner.wait(timeout=240)
    finally:
        tuner.kill()
        tuner.wait()
    assert ends(int(note.read_text()))


def test_a_child_whose_starter_is_dead_already_does_nothing(tmp_path: Path) -> None:
    note = tmp_path / "note"
    command = guarded_command([sys.executable, "-c", f"open({str(note)!r}, 'w')"])
    stranger = [*command[:4], "1" if os.getpid() != 1 else "2", *command[5:]]
    assert subprocess.run(stranger).returncode == -signal.SIGKILL and not note.exists()
    assert subprocess.run(command).returncode == 0 and note.exists()


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_watched(["no-such-tool-of-ours"], {}, tmp_path / "log", heartbeat=lambda: 0, stall_limit_s=1)
