"""Puts the stand-in for nsys on PATH."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import nsys_stand_in
import pytest


def nsys_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder below ``folder`` that is first on PATH and has an ``nsys``, which starts in a moment."""
    binaries = folder / "bin"
    binaries.mkdir()
    command = shlex.join([sys.executable, "-I", "-S", nsys_stand_in.__file__])
    (binaries / "nsys").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (binaries / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(binaries), prepend=os.pathsep)
    return binaries
