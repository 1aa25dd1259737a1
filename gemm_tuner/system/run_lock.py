"""A lock that lets only one process at a time work in a run's folder."""

from __future__ import annotations

import datetime
import json
import os
import socket
from pathlib import Path

from filelock import FileLock, Timeout

from gemm_tuner.core.errors import EnvironmentFault

LOCK_FILE = "run.lock"
# Names the holder. Not in the lock file, which some versions of filelock truncate on an attempt to lock it.
HOLDER_FILE = "run.lock.json"


class RunLock:
    """Held from ``take`` until ``release`` or the end of the process, even if it is killed."""

    def __init__(self, folder: Path) -> None:
        self.path, self._holder_path = folder / LOCK_FILE, folder / HOLDER_FILE
        self._lock = FileLock(self.path, thread_local=False)  # released by any thread

    def take(self) -> None:
        """Takes the lock. Raises EnvironmentFault, naming the holder, when another process has it."""
        try:
            self._lock.acquire(blocking=False)
            now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            note = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
            self._holder_path.write_text(json.dumps(note), encoding="utf-8")
        except Timeout:
            hint = "wait for it, end it, or start a run of your own with --fresh"
            what = f"this run is under way already: {self._holder()}"
            raise EnvironmentFault(what, where=str(self.path), hint=hint) from None
        except OSError as error:
            self.release()
            raise EnvironmentFault(f"cannot be written: {error.strerror}", where=str(self.path)) from error

    def _holder(self) -> str:
        try:
            row = json.loads(self._holder_path.read_text(encoding="utf-8")[:1000])
            return f"process {int(row['pid'])} on {str(row['host'])[:100]!r} since {str(row['since'])[:40]}"
        except (OSError, ValueError, KeyError, TypeError):
            return "by another process"

    def release(self) -> None:
        self._lock.release()
