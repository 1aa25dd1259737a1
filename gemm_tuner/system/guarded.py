"""``python guarded.py PID COMMAND ...`` executes the command; the operating system kills it when its parent PID
dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(starter: int) -> None:
    """Asks the operating system to kill this process when its parent dies; Linux only. A parent that is already dead
    sends no signal, so in that case this process exits here."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter:
            os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> None:
    die_with_parent(int(argv[0]))
    try:
        os.execvp(argv[1], argv[1:])
    except OSError as error:
        sys.exit(error.strerror)


if __name__ == "__main__":
    main(sys.argv[1:])
