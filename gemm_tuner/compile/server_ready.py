"""Imported by the fork server last: a file says that it has imported everything, and forks at once from now on."""

from __future__ import annotations

import os
from pathlib import Path

# The file, set for the server alone.
READY_VARIABLE = "GEMM_TUNER_FORK_SERVER_READY"

if path := os.environ.pop(READY_VARIABLE, ""):
    Path(path).touch()
