"""``python module_start.py MODULE ...``: as ``python -m MODULE ...``, but without the user's folder in the search path;
``python module_start.py -c SOURCE ...`` in the same way as ``python -c SOURCE ...``.

What lies there, such as a queue.py, would take the place of modules that MODULE or SOURCE imports. PYTHONPATH has to
lead to them. Python 3.11 has a flag for this, Python 3.10 has none.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != own]
    sys.argv[:] = sys.argv[1:]
    if sys.argv[0] == "-c":
        import signal
        import types

        # multiprocess's servers ignore Ctrl-C, but not before they have imported what they need.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(sys.argv.pop(1), "<string>", "exec"), vars(sys.modules["__main__"]))  # noqa: S102
    else:
        import runpy

        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
