"""``python guarded.py COMMAND ...`` becomes the command, which the operating system ends when its starter dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
