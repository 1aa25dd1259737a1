"""An advisory lock per GPU, for all users and processes of this machine.

A process holds the lock while it times or checks on the GPU, so that two runs do not disturb each other's times. The
lock is a flock on a file, which the operating system frees when the holder ends. A second file names the holder.

The files are in GEMM_TUNER_LOCK_DIR, else in the system's lock folder if all users may write there, else in the
temporary folder. Containers share a lock only when they share that folder.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gemm_tuner.core.errors import EnvironmentFault, UserError

LOCK_DIR = "GEMM_TUNER_LOCK_DIR"
FOLDERS = (Path("/run/lock"), Path("/var/lock"), Path("/tmp"))
# Every user may take a lock, so every user must be able to open its file for writing.
MODE = 0o666
SAY_EVERY_S = 60.0
LOOK_EVERY_S = 0.2
COMMAND_CHARS = 200
NOTE_BYTES = 4096


class GpuInUse(EnvironmentFault):
    """Another process held the GPU for longer than the time to wait."""


def lock_folder() -> Path:
    """The folder of the lock files. Raises UserError when GEMM_TUNER_LOCK_DIR is not a folder."""
    named = os.environ.get(LOCK_DIR)
    if named:
        if not Path(named).is_dir():
            raise UserError(f"{named} is no folder", where=LOCK_DIR, accepted="a folder that all users may write")
        return Path(named)
    shared = (folder for folder in FOLDERS if folder.is_dir() and folder.stat().st_mode & stat.S_IWOTH)
    return next((folder for folder in shared if os.access(folder, os.W_OK)), Path(tempfile.gettempdir()))


def lock_name(uuid: str) -> str:
    """The GPU's part of the lock file name: its UUID without "GPU-" or "MIG-", because torch and CUDA use different
    prefixes for the same MIG instance."""
    bare = uuid.lower().removeprefix("gpu-").removeprefix("mig-")
    return "".join(c if c.isalnum() or c in "-." else "_" for c in bare)


def lock_path(uuid: str) -> Path:
    return lock_folder() / f"gemm_tuner-{lock_name(uuid)}.lock"


@contextmanager
def held(
    uuids: Iterable[str],
    wait_s: float | None = None,
    on_wait: Callable[[str], None] = print,
    *,
    stop: Callable[[], bool] = lambda: False,
    say_every_s: float = SAY_EVERY_S,
) -> Iterator[None]:
    """Holds the locks of all these GPUs while the block runs. They are taken in the order of their UUIDs, so that two
    processes that need the same GPUs cannot deadlock.

    uuids:   UUIDs of GPUs or MIG instances, or any other name that all processes of this machine use for the GPU.
    wait_s:  seconds to wait, for all locks together; 0 does not wait, None has no limit.
    on_wait: called with a sentence that names the holder when waiting begins, and every ``say_every_s`` after that.
    stop:    called several times a second while waiting; True raises KeyboardInterrupt.

    Not reentrant: a process that holds a lock must not take it again.
    Raises GpuInUse when the time is over and EnvironmentFault when a lock file cannot be opened (exit status 3).
    """
    until = float("inf") if wait_s is None else time.monotonic() + wait_s
    with ExitStack() as locks:
        for _, uuid in sorted({lock_name(uuid): uuid for uuid in uuids}.items()):
            lock = FileLock(lock_path(uuid), mode=MODE, thread_local=False)  # released by any thread
            try:
                _take(lock, uuid, until, on_wait, stop, say_every_s)
            except OSError as error:
                raise EnvironmentFault(
                    f"the lock of a GPU cannot be opened: {error.strerror}",
                    where=lock.lock_file,
                    hint=f"set {LOCK_DIR} to a folder that all users of this GPU may write",
                ) from error
            locks.callback(lock.release)
            locks.callback(_write_holder, uuid, {})
            _write_holder(uuid, {"pid": os.getpid(), "command": shlex.join(sys.orig_argv)[:COMMAND_CHARS]})
        yield


def _take(
    lock: FileLock,
    uuid: str,
    until: float,
    on_wait: Callable[[str], None],
    stop: Callable[[], bool],
    say_every_s: float,
) -> None:
    """Waits for one lock. until: a time of time.monotonic(), after which GpuInUse is raised. Raises KeyboardInterrupt
    when stop() is true."""
    wait_s = 0.0
    while True:
        with suppress(Timeout):  # also raised when stop() becomes true
            lock.acquire(wait_s, LOOK_EVERY_S, cancel_check=stop)
            return
        if stop():
            raise KeyboardInterrupt
        left_s = until - time.monotonic()
        if left_s <= 0:
            hint = "wait for it by --wait TIME, or use another GPU"
            raise GpuInUse(f"GPU {uuid} is in use by {holder(uuid)}", hint=hint)
        on_wait(f"waiting for GPU {uuid}, which is in use by {holder(uuid)}")
        wait_s = min(say_every_s, left_s)


def _holder_path(uuid: str) -> Path:
    """The file that names the holder. It is not the lock file, which some versions of filelock truncate on an attempt
    to lock it."""
    return lock_path(uuid).with_suffix(".holder")


def _write_holder(uuid: str, note: dict[str, Any]) -> None:
    """Writes who holds a lock, for messages only; write errors are ignored."""
    path = _holder_path(uuid)
    with suppress(OSError):
        with suppress(FileExistsError):  # in a sticky folder, O_CREAT on another user's file is refused
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
            os.fchmod(descriptor, MODE)
            os.close(descriptor)
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            os.write(descriptor, json.dumps(note).encode())
        finally:
            os.close(descriptor)


def holder(uuid: str) -> str:
    """A description of the process that holds a GPU's lock, from the holder's file."""
    try:
        with _holder_path(uuid).open("rb") as stream:
            note = json.loads(stream.read(NOTE_BYTES))
        command = "".join(c for c in str(note["command"])[:COMMAND_CHARS] if c.isprintable())
        return f"process {int(note['pid'])} ({command})" if command else f"process {int(note['pid'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
