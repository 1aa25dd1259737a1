"""Runs one child process with a time limit, and keeps the end of its output."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gemm_tuner.system.processes import MARK, OWNER, guarded_command, identity, kill_family

MAX_BYTES = 8 * 2**20
# How long to read what is left in the pipes after every writer was killed.
DRAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class ChildOutput:
    """The result of a child. exit_status: minus the signal number if a signal ended it. stdout, stderr: the last
    MAX_BYTES of each."""

    exit_status: int
    timed_out: bool
    seconds: float
    stdout: str
    stderr: str


def run_child(argv: Sequence[str], environ: Mapping[str, str], cwd: Path, timeout_s: float) -> ChildOutput:
    """Runs a command in a new process group that dies with this process.

    The command and everything it started is killed when it ends, at the time limit, and when an exception (Ctrl-C)
    leaves this call.
    """
    mark = secrets.token_hex(8)
    started = time.monotonic()
    process = subprocess.Popen(
        guarded_command(argv),
        env={**environ, MARK: mark, OWNER: identity(os.getpid())},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    kept = (bytearray(), bytearray())
    readers = [
        threading.Thread(target=_keep, args=one, daemon=True)
        for one in zip((process.stdout, process.stderr), kept, strict=True)
    ]
    for reader in readers:
        reader.start()
    timed_out = False
    try:
        process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        kill_family(process.pid, mark)
        process.wait()
        seconds = time.monotonic() - started
        for reader in readers:
            reader.join(DRAIN_S)
    texts = [bytes(one[-MAX_BYTES:]).decode("utf-8", "replace") for one in kept]
    return ChildOutput(process.returncode, timed_out, seconds, texts[0], texts[1])


def _keep(stream: IO[bytes], kept: bytearray) -> None:
    """Reads a pipe to its end into ``kept``, which holds the last MAX_BYTES."""
    with contextlib.suppress(OSError, ValueError), stream:
        while chunk := os.read(stream.fileno(), 2**16):
            kept += chunk
            if len(kept) > 2 * MAX_BYTES:
                del kept[:-MAX_BYTES]
