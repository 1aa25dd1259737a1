"""``python guarded.py COMMAND ...`` becomes the command, which the operating system ends when its starter dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_the_starter() -> None:
    """Asks the operating system to kill this process when the one that started it dies; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str]) -> None:
    die_with_the_starter()
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
