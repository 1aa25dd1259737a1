"""The kernels between the GEMMs of a whole MoE call, compiled for GPUs that are not here.

``make test`` compiles every second one for one architecture and the others for the other; ``make test-all`` all for
both.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from work import ROOT, space_of

TYPES = {"sm_90": "float8_e4m3fn", "gfx942": "float8_e4m3fnuz"}


@pytest.mark.parametrize("parts", [("0/2", "1/2"), pytest.param(("0/1", "0/1"), marks=pytest.mark.grid)])
def test_they_compile(parts: tuple[str, str]) -> None:
    targets = [(space_of(arch).device.target, fp8) for arch, fp8 in TYPES.items()]
    words = [
        f"{target.backend} {target.arch} {target.warp_size} {fp8} {part}"
        for (target, fp8), part in zip(targets, parts, strict=True)
    ]
    script = ROOT / "tests" / "compile" / "whole_call_compiles.py"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script), *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [f"done {arch}" for arch in TYPES], done.stderr[-2000:]
