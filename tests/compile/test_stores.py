"""Stores of an odd C by pointer: neighbouring threads write neighbouring columns.

Triton arranges the threads by what it can prove of the addresses. Where it proves nothing of the columns, threads
follow the rows instead under Triton 3.6 (no longer under 3.9), and the kernel takes four times as long: 4095x4097x1023
in bf16 285 us in place of 66 on an H200.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from work import ROOT


def test_neighbouring_threads_store_neighbouring_columns(tmp_path: Path) -> None:
    folder = ROOT / "tests" / "compile"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    command = [sys.executable, str(folder / "store_orders.py"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    found = [line.split() for line in done.stdout.splitlines()]
    assert [family for family, *_ in found] == ["gemm_packed", "gemm_tile"], done.stderr[-2000:]
    assert all(followed and set(followed) == {"1"} for _, *followed in found), found
