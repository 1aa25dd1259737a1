"""``python by_path.py SCRIPT ...``: runs a script as proton does, by its path, in a process that is not its own."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
