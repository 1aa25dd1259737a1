"""``python module_start.py MODULE ...``: as ``python -m MODULE ...``, but without the user's folder in the search path.

What lies there, such as a queue.py, would take the place of modules that MODULE imports. PYTHONPATH has to lead to it.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != own]
    import runpy

    sys.argv[:] = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
