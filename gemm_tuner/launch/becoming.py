"""``python becoming.py``: imports what takes a launcher seconds, then becomes the launcher that its input names.

The first line of standard input is the path of a JSON file, {"argv": [script, argument, ...], "environment": {name:
value}, "log": path}, which is removed: what ``python script argument ...`` would do in that environment, with its
output appended to the log. The lines after it are the launcher's.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

from gemm_tuner.languages.triton import proton_session
from gemm_tuner.launch.processor import processor_of
from gemm_tuner.system.processes import MARK, OWNER, exit_with_tuner


def main() -> None:
    exit_with_tuner()
    processor_of("cuda")  # imports torch without using the GPU
    proton_session.load()
    path = first_line()
    if not path:
        return
    order = json.loads(Path(path).read_bytes())
    Path(path).unlink()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    own = {name: os.environ[name] for name in (MARK, OWNER) if name in os.environ}
    os.environ.clear()
    os.environ.update({**order["environment"], **own})
    sys.argv = order["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


def first_line() -> str:
    """The first line on standard input, of which nothing more is read; empty if the input ends before."""
    line = b""
    while byte := os.read(0, 1):
        if byte == b"\n":
            return os.fsdecode(line)
        line += byte
    return ""


if __name__ == "__main__":
    main()
