"""``python becoming.py``: imports what takes a launcher seconds, then becomes the launcher that its input names.

Standard input has the number of bytes of a JSON text, a newline, and the text, {"argv": [script, argument, ...],
"environment": {name: value}, "log": path}: what ``python script argument ...`` would do in that environment, with its
output appended to the log. What follows on standard input is the launcher's.
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
    text = order()
    if not text:
        return
    given = json.loads(text)
    log = os.open(given["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    own = {name: os.environ[name] for name in (MARK, OWNER) if name in os.environ}
    os.environ.clear()
    os.environ.update({**given["environment"], **own})
    sys.argv = given["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


def order() -> bytes:
    """The text on standard input, of which nothing more is read; empty if the input ends before."""
    digits = b""
    while (byte := os.read(0, 1)) != b"\n":
        if not byte:
            return b""
        digits += byte
    text, size = b"", int(digits)
    while len(text) < size and (part := os.read(0, size - len(text))):
        text += part
    return text if len(text) == size else b""


if __name__ == "__main__":
    main()
