"""A lock per GPU for all processes and users of a machine: real processes that hold it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from samples import ROOT

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EnvironmentFault, UserError
from gemm_tuner.system import gpu_lock
from gemm_tuner.system.gpu_lock import held, lock_path

ONE, OTHER = "GPU-1b2c", "GPU-9f00"
HOLD = """
import sys
from gemm_tuner.system.gpu_lock import held
with held(sys.argv[1:], on_wait=lambda text: print("waits", flush=True)):
    print("held", flush=True)
    sys.stdin.read()
"""
NOBODY = 65534


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(gpu_lock.LOCK_DIR, str(tmp_path))
    return tmp_path


class Holders:
    """Processes that take locks and hold them until they are ended."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *uuids: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, *uuids]
        self.processes.append(subprocess.Popen(command, cwd=ROOT, text=True, stdin=-1, stdout=-1))
        return self.processes[-1]

    def holding(self, *uuids: str) -> subprocess.Popen[str]:
        process = self.start(*uuids)
        assert says(process) == "held"
        return process


def says(process: subprocess.Popen[str]) -> str:
    """The next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def holders() -> Iterator[Holders]:
    them = Holders()
    yield them
    for process in them.processes:
        process.kill()
        process.communicate()


def silent(text: str) -> None:
    """For those who need not hear who holds it."""


def test_a_gpu_in_use_is_refused_at_once_and_its_holder_is_named(holders: Holders) -> None:
    process = holders.holding(ONE)
    with pytest.raises(EnvironmentFault) as caught, held([ONE], wait_s=0, on_wait=silent):
        pass
    line = caught.value.one_line()
    assert caught.value.exit_status == EXIT_ENVIRONMENT
    assert ONE in line and f"process {process.pid} (" in line and "gpu_lock import held" in line


def test_a_refused_process_leaves_the_holders_name(holders: Holders) -> None:
    holders.holding(ONE)
    before = gpu_lock.holder(ONE)
    with pytest.raises(EnvironmentFault), held([ONE], wait_s=0, on_wait=silent):
        pass
    assert gpu_lock.holder(ONE) == before


def test_a_killed_holder_frees_it_and_who_waits_gets_it(holders: Holders) -> None:
    process, heard = holders.holding(ONE), list[str]()

    def first_line(text: str) -> None:
        heard.append(text)
        process.kill()

    with held([ONE], on_wait=first_line):
        assert f"process {process.pid} (" in heard[0]


def test_who_waits_hears_of_it_again_and_again(holders: Holders) -> None:
    process, heard = holders.holding(ONE), list[str]()

    def third_line(text: str) -> None:
        heard.append(text)
        if len(heard) == 3:
            process.kill()

    with held([ONE], on_wait=third_line, say_every_s=0.01):
        pass
    assert len(heard) >= 3


def test_waiting_ends_after_its_time(holders: Holders, monkeypatch: pytest.MonkeyPatch) -> None:
    holders.holding(ONE)
    heard: list[float] = []
    monkeypatch.setattr(gpu_lock, "time", SimpleNamespace(monotonic=lambda: 40.0 * len(heard)))
    waiting = held([ONE], wait_s=100.0, on_wait=lambda text: heard.append(0.0), say_every_s=0.01)
    with pytest.raises(EnvironmentFault, match="in use"), waiting:
        pass
    assert len(heard) == 3


def test_waiting_ends_when_the_run_is_to_stop(holders: Holders) -> None:
    holders.holding(ONE)
    asked = threading.Event()
    with pytest.raises(KeyboardInterrupt), held([ONE], on_wait=lambda text: asked.set(), stop=asked.is_set):
        pass


def test_another_gpu_is_free(holders: Holders) -> None:
    holders.holding(ONE)
    with held([OTHER], wait_s=0):
        pass


def test_gpus_are_taken_in_the_order_of_their_uuids(holders: Holders) -> None:
    """Who asks for (OTHER, ONE) while ONE is held waits for it without holding OTHER: nobody can wait in a circle."""
    holders.holding(ONE)
    waiting = holders.start(OTHER, ONE)
    assert says(waiting) == "waits"
    with held([OTHER], wait_s=0):
        pass


def test_what_was_taken_is_freed_when_the_next_cannot_be(holders: Holders) -> None:
    holders.holding(OTHER)
    with pytest.raises(EnvironmentFault), held([ONE, OTHER], wait_s=0, on_wait=silent):
        pass
    assert says(holders.start(ONE)) == "held"


def test_it_is_free_after_the_block_and_after_an_error(holders: Holders) -> None:
    with pytest.raises(ZeroDivisionError), held([ONE]):
        1 / 0  # noqa: B018
    assert says(holders.start(ONE)) == "held"


def test_a_gpu_named_twice_is_one() -> None:
    """CUDA writes a MIG instance's UUID with another prefix than torch does."""
    with held(["MIG-77aa", "GPU-77AA", "77aa"], wait_s=0):
        pass


def test_every_user_may_take_it_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with held([ONE]):
            pass
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {gpu_lock.MODE}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_takes_it_after_me(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder like /tmp, where what another user made can be written but not removed."""
    with held([ONE]):
        pass
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and path != Path("/") and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o711)
    tmp_path.chmod(0o1777)
    child = os.fork()
    if child == 0:
        try:
            os.setuid(NOBODY)
            with held([ONE], wait_s=0):
                os._exit(0 if gpu_lock.holder(ONE).startswith(f"process {os.getpid()}") else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_lock_without_a_readable_note_is_a_lock(holders: Holders, folder: Path) -> None:
    holders.holding(ONE)
    for path in folder.glob("*.holder"):
        path.write_bytes(b'{"pid": [')
    with pytest.raises(EnvironmentFault, match="in use by another process"), held([ONE], wait_s=0, on_wait=silent):
        pass


def test_a_folder_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu_lock.LOCK_DIR, str(tmp_path / "absent"))
    with pytest.raises(UserError, match="no folder"), held([ONE]):
        pass


def test_a_lock_that_cannot_be_opened_is_a_fault_of_the_environment() -> None:
    lock_path(ONE).mkdir()
    with pytest.raises(EnvironmentFault, match="cannot be opened"), held([ONE]):
        pass


def test_the_folder_is_one_that_all_users_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpu_lock.LOCK_DIR)
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    mine.mkdir(mode=0o755)
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(gpu_lock, "FOLDERS", (tmp_path / "absent", mine, shared))
    assert gpu_lock.lock_folder() == shared


def test_a_folder_for_all_users_on_a_read_only_file_system_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, shared = tmp_path / "closed", tmp_path / "shared"
    for folder in (closed, shared):
        folder.mkdir()
        folder.chmod(0o1777)
    monkeypatch.delenv(gpu_lock.LOCK_DIR, raising=False)
    monkeypatch.setattr(gpu_lock, "FOLDERS", (closed, shared))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed)  # root may write anywhere
    assert gpu_lock.lock_folder() == shared
