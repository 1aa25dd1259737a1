"""``tune_gemm.py`` in the process of the tests, on a machine that is known to have no GPU.

A process of its own would import the tuner anew, and another one torch, to look for a GPU: three seconds of CPU time.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

import pytest
from samples import NO_GPU

from gemm_tuner.cli.main import main
from gemm_tuner.measure import device


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def tune_gemm(folder: Path, *words: str) -> Done:
    """What the command says and how it ends, run in a folder."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as here, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        here.chdir(folder)
        here.setattr(device, "look", lambda: NO_GPU)
        status = main(list(words))
    return Done(status, out.getvalue(), err.getvalue())
