"""When the process of a command began."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from gemm_tuner.system.installation import IMPORT_ROOT

CODE = "import time; from gemm_tuner.system.start_time import began; print(began(), time.monotonic())"


def test_a_process_knows_when_it_began() -> None:
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", CODE], cwd=IMPORT_ROOT, capture_output=True, text=True, check=True)
    began, asked = map(float, done.stdout.split())
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert before - 2 * tick_s <= began <= asked
