"""A process that ends without looking through its objects."""

from __future__ import annotations

import subprocess
import sys

from samples import ROOT

CODE = """
import atexit, gc, sys
from gemm_tuner.system.short_end import end_quickly
atexit.register(lambda: print(gc.get_freeze_count() > 10_000))
end_quickly()
import triton.language
atexit.register(print, "what is registered later is heard", file=sys.stderr)
print("the last line", file=sys.stderr)
"""


def test_it_ends_well_and_says_nothing_more() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "the last line\nwhat is registered later is heard\n")
