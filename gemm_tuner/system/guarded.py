"""``python guarded.py PID COMMAND ...`` becomes the command, which the operating system ends when its starter, the
process PID, dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_the_starter(starter: int) -> None:
    """Asks the operating system to kill this process when the one that started it dies; Linux only. A starter that is
    dead already sends no signal: then this process ends here."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter:
            os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> None:
    die_with_the_starter(int(argv[0]))
    try:
        os.execvp(argv[1], argv[1:])
    except OSError as error:
        sys.exit(error.strerror)


if __name__ == "__main__":
    main(sys.argv[1:])
