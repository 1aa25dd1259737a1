"""Imported by the fork server alone: it ends without being taken apart.

The compilers' libraries print dozens of lines on what they would have freed at such an end, and the server ends after
the tuner, on a terminal that is the user's again. Handlers that the imports of the server register still run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

_server = os.getpid()


def _end() -> None:
    if os.getpid() != _server:  # a worker
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, or its reader is gone, or closed
            stream.flush()
    os._exit(0)


# The last handler that runs, because the first that is registered after those of multiprocess itself.
atexit.register(_end)
