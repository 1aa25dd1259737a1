"""Files that a run's problems name, on a machine of a cluster: their content travels, and is found by the path that it
has where the run was started."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

# The folder of the copies, for processes that are started on such a machine.
VARIABLE = "GEMM_TUNER_CARRIED_FILES"
FOLDER = "carried"
NAME_DIGITS = 16


def copy_name(path: str) -> str:
    """The name of the copy of a file."""
    return hashlib.sha256(path.encode()).hexdigest()[:NAME_DIGITS]


def path_here(path: str) -> Path:
    """Where to read a file that a problem names."""
    folder = os.environ.get(VARIABLE)
    copy = Path(folder) / copy_name(path) if folder else None
    return copy if copy is not None and copy.exists() else Path(path)
