"""A process that imports torch from the first moment of a command on, and becomes the first launcher of screening.

The import takes 2 to 4 s, and nothing is timed before. What is to be launched, and where its files go, is known a
second or two after the command began.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gemm_tuner.system.installation import IMPORT_ROOT, import_path
from gemm_tuner.system.processes import Watched

# By its path: with -m, what lies in the user's folder would take the place of modules that it imports.
BECOMING = IMPORT_ROOT / "gemm_tuner" / "launch" / "becoming.py"


@dataclass
class TorchAhead:
    """The process, until it is asked to become a launcher; None where there is none."""

    _process: Watched | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def begin(cls, removed: Collection[str] = ()) -> TorchAhead:
        """Starts it; the operating system ends it with the thread that calls this. removed: variables of this process's
        environment that it must not import torch with."""
        inherited = {name: value for name, value in os.environ.items() if name not in removed}
        env = {**inherited, "PYTHONPATH": import_path(inherited)}
        with contextlib.suppress(OSError):  # the launcher that is started later tells
            return cls(Watched([sys.executable, str(BECOMING)], env, Path(os.devnull)))
        return cls()

    def become(self, argv: list[str], environment: Mapping[str, str], log_path: Path) -> Watched | None:
        """``python argv``, as if it had been started so; the first time, if the process lives, and else None."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return None
        if not process.alive:
            process.kill()
            return None
        log_path.touch()  # it may end before it writes there
        process.tell(str(written(log_path, {"argv": argv, "environment": dict(environment), "log": str(log_path)})))
        process.log_path = log_path
        return process

    def end(self) -> None:
        """Ends the process if it has become nothing."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()


def written(log_path: Path, order: Mapping[str, object]) -> Path:
    """The path of a file beside the log that only this user can read, since an environment may have secrets."""
    path = log_path.with_suffix(".order.json")
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        json.dump(order, stream)
    return path
