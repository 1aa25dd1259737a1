"""The name by which this program was called, for usage lines, hints and errors that contain a command."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

SCRIPT = "tune_gemm.py"
# Of a command that starts this one and passes its output on: its own name, and the width of its terminal.
CALLED_AS, SHOWN_WIDTH = "GEMM_TUNER_CALLED_AS", "GEMM_TUNER_SHOWN_WIDTH"
_INSTALLED = ("tune-gemm", "tune_gemm")
# The script's name as a command; not as part of a path or of another name.
_COMMAND = re.compile(r"(?<![\w/.\-])tune_gemm\.py(?![\w/\-])")


def name() -> str:
    """The command as typed: tune_gemm.py, tune-gemm or python -m gemm_tuner.cli; tune_gemm.py if it is none of
    these. That of the command which started this one, if it has said so."""
    if passed_on := os.environ.get(CALLED_AS):
        return passed_on
    called = Path(sys.argv[0] if sys.argv else "")
    if called.name == "__main__.py" and called.parent.name == "cli":
        return "python -m gemm_tuner.cli"
    return called.stem if called.stem in _INSTALLED and called.suffix != ".py" else SCRIPT


def as_called(text: str) -> str:
    """``text`` with the command tune_gemm.py replaced by the name that this program was called by."""
    return _COMMAND.sub(lambda _: name(), text)
