"""One run at a time in a folder: real processes that hold the lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EnvironmentFault
from gemm_tuner.system.run_lock import HOLDER_FILE, RunLock

HOLD = """
import sys
from pathlib import Path
from gemm_tuner.system.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.take()
print("held", flush=True)
sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until its standard input ends or it is killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], cwd=ROOT, text=True, stdin=-1, stdout=-1)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_another_process_is_named_and_nothing_of_its_lock_is_changed(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        written = (tmp_path / HOLDER_FILE).read_text()
        with pytest.raises(EnvironmentFault, match="under way") as caught:
            RunLock(tmp_path).take()
        assert f"process {process.pid} on " in caught.value.one_line() and "--fresh" in caught.value.one_line()
        assert caught.value.exit_status == EXIT_ENVIRONMENT
        assert (tmp_path / HOLDER_FILE).read_text() == written
    finally:
        end(process)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    end(holder(tmp_path))
    lock = RunLock(tmp_path)
    lock.take()
    lock.release()


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    one, other = RunLock(tmp_path), RunLock(tmp_path)
    one.take()
    with pytest.raises(EnvironmentFault):
        other.take()
    one.release()
    other.take()
    other.release()
    other.release()  # twice is no error


def test_a_lock_without_a_readable_name_is_a_lock(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        (tmp_path / HOLDER_FILE).write_text('{"pid": [')
        with pytest.raises(EnvironmentFault, match="by another process"):
            RunLock(tmp_path).take()
    finally:
        end(process)


def test_a_folder_that_cannot_be_written_is_a_fault_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("no folder")
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        RunLock(tmp_path / "folder").take()
