"""Runs a command on a terminal of 80 columns and says when it first wrote and how long it was silent.

    python benchmarks/signs_of_life.py python tune_gemm.py -m 512 -n 512 -k 512 --fresh

Prints wall time, CPU time of all its processes, the first sign of life, and the longest silences with the line before
each. Exit status 1 where the first sign came later than FIRST_S or a silence is longer than SILENCE_S. Linux only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import re
import resource
import struct
import sys
import termios
import time

FIRST_S, SILENCE_S = 1.0, 2.0
ROWS, COLUMNS = 24, 80
SHOWN = 3
PR_SET_CHILD_SUBREAPER = 36
CONTROL = re.compile(r"\x1b\[[?\d;]*[a-zA-Z]")


def run(command: list[str]) -> tuple[list[tuple[float, str]], float, int]:
    """(seconds and text of each write, seconds of all, exit status) of a command on a terminal."""
    began = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    written = []
    while True:
        try:
            text = os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:  # nobody has the terminal open any more
            break
        if not text:
            break
        written.append((time.monotonic() - began, text))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return written, time.monotonic() - began, status


def silences(written: list[tuple[float, str]], end_s: float) -> list[tuple[float, float, str]]:
    """(seconds, when it began, the last line before it), longest first; the start is none."""
    found, shown = [], ""
    for (at_s, text), next_s in zip(written, [*(at_s for at_s, _ in written[1:]), end_s], strict=True):
        lines = [line for line in re.split(r"[\r\n]+", CONTROL.sub("", text)) if line.strip()]
        shown = lines[-1] if lines else shown
        found.append((next_s - at_s, at_s, shown))
    return sorted(found, reverse=True)


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    # Processes that outlive their parent are counted, too.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    written, seconds, status = run(sys.argv[1:])
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    first_s = written[0][0] if written else seconds
    cpu_s, load = used.ru_utime + used.ru_stime, os.getloadavg()[0]
    print(f"{seconds:.1f} s, CPU {cpu_s:.1f} s, exit status {status}, load {load:.1f}")
    print(f"first sign of life after {first_s:.2f} s")
    found = silences(written, seconds)
    for silent_s, at_s, shown in found[:SHOWN]:
        print(f"silent for {silent_s:.2f} s from {at_s:.2f} s on, after: {shown.strip()[:60]}")
    return int(status != 0 or first_s > FIRST_S or any(one[0] > SILENCE_S for one in found))


if __name__ == "__main__":
    sys.exit(main())
