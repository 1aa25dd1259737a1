"""Runs what the supervisor starts in this process: the stand-ins for nsys and the launcher are called, not started.

A start takes half a second of processor time in four processes, and milliseconds here. Journals, traces, logs and exit
statuses are the same; a signal ends the call. Nothing can be ended from outside: what hangs or waits needs a process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import launcher_stand_in
import nsys_stand_in
import pytest

from gemm_tuner.measure import supervise
from gemm_tuner.system.processes import Ended


class Signalled(BaseException):
    def __init__(self, number: signal.Signals) -> None:
        self.number = number


def end_by(number: signal.Signals) -> None:
    raise Signalled(number)


def launcher(command: list[str]) -> int:
    """The exit status of ``python launcher_stand_in.py --plan ...``, minus the signal that ended it."""
    _, script, *arguments = command
    assert Path(script).name == "launcher_stand_in.py", command
    try:
        launcher_stand_in.run(arguments)
    except Signalled as ended:
        return -ended.number
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def run_here(
    argv: list[str],
    env: dict[str, str],
    log_path: Path,
    *,
    heartbeat: Callable[[], object],
    stall_limit_s: float | Callable[[], float],
) -> Ended:
    """As ``processes.run_watched``, whose heart beats once, at the end."""
    with log_path.open("a") as log, contextlib.redirect_stderr(log), contextlib.redirect_stdout(log):
        status = nsys_stand_in.main(argv[1:]) if os.path.basename(argv[0]) == "nsys" else launcher(argv)
    heartbeat()
    return Ended(status, False, 0.001, log_path)


def run_launchers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "run_watched", run_here)
    monkeypatch.setattr(nsys_stand_in, "run", launcher)
    monkeypatch.setattr(launcher_stand_in, "end_by", end_by)
