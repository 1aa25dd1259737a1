"""A process that ends without looking through its objects."""

from __future__ import annotations

import subprocess
import sys

from samples import ROOT

CODE = """
import atexit, sys
import triton.language
from gemm_tuner.system.short_end import end_quickly
atexit.register(print, "what is registered still runs")
end_quickly()
print("the last line", file=sys.stderr)
"""


def test_it_ends_well_and_says_nothing_more() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("what is registered still runs\n", "the last line\n")
