"""Where sides are odd, neighbouring threads still load and store what lies side by side in memory.

Triton arranges the threads by what it can prove of the addresses. Where it proves nothing it takes any order (rows
first in 3.6, columns first in 3.9), and each thread may touch another line of memory: stores of C along rows made
gemm_packed take 285 us in place of 66 at 4095x4097x1023 in bf16 on an H200.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from work import ROOT

ALONG = {"row": "1", "col": "0"}


def test_neighbouring_threads_touch_neighbours_in_memory(tmp_path: Path) -> None:
    folder = ROOT / "tests" / "compile"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    command = [sys.executable, str(folder / "thread_orders.py"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [family for family, *_ in lines] == ["gemm_packed", *["gemm_tile"] * 4], done.stderr[-2000:]
    for family, layout_a, layout_b, *found in lines:
        by_pointer = [f"A:{ALONG[layout_a]}", f"B:{ALONG[layout_b]}"] if family == "gemm_tile" else []
        assert found == [*by_pointer, "C:1"], (family, layout_a, layout_b)
