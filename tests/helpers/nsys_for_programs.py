"""A stand-in for nsys that tells its program, by TRACE, the folder where it reads the kernels that were launched."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from samples import ROOT

STAND_IN = ROOT / "tests" / "faults" / "on_path" / "nsys_stand_in.py"
NSYS = """\
#!/bin/sh
[ "$1" = --version ] && echo "NVIDIA Nsight Systems version 2025.1.1.0" && exit
for word; do [ "$before" = -o ] && TRACE=$(dirname "$word"); before=$word; done
export TRACE
exec {python} -I -S {stand_in} "$@"
"""


def nsys_for_programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts it into ``folder``, and this first on PATH."""
    (folder / "nsys").write_text(NSYS.format(python=sys.executable, stand_in=STAND_IN))
    (folder / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
