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
        order = json.dumps({"argv": argv, "environment": dict(environment), "log": str(log_path)}) + "\n"
        process.tell(str(len(order.encode())))
        process.tell(order.removesuffix("\n"))
        process.log_path = log_path
        return process

    def end(self) -> None:
        """Ends the process if it has become nothing."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
