"""A lock that lets only one process at a time work in a run's folder."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import TextIO

from gemm_tuner.core.errors import EnvironmentFault

LOCK_FILE = "run.lock"


class RunLock:
    """Held from ``take`` until ``release`` or the end of the process, even if it is killed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_FILE
        self._stream: TextIO | None = None

    def take(self) -> None:
        """Takes the lock. Raises EnvironmentFault, naming the holder, when another process has it."""
        try:
            stream = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise EnvironmentFault(f"cannot be written: {error.strerror}", where=str(self.path)) from error
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = self._holder(stream)
            stream.close()
            hint = "wait for it, end it, or start a run of your own with --fresh"
            raise EnvironmentFault(
                f"this run is under way already: {holder}", where=str(self.path), hint=hint
            ) from None
        stream.seek(0)
        stream.truncate()
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": now}, stream)
        stream.flush()
        self._stream = stream

    @staticmethod
    def _holder(stream: TextIO) -> str:
        stream.seek(0)
        try:
            row = json.loads(stream.read(1000))
            return f"process {int(row['pid'])} on {str(row['host'])[:100]!r} since {str(row['since'])[:40]}"
        except (ValueError, KeyError, TypeError):
            return "by another process"

    def release(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
