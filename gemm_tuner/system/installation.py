"""Where the package lies, and templates/ and rules/ with it."""

from __future__ import annotations

from pathlib import Path

import gemm_tuner

PACKAGE = Path(gemm_tuner.__file__).resolve().parent
# The folder to put on the path of a process that imports the package.
IMPORT_ROOT = PACKAGE.parent


def data_folder(name: str) -> Path:
    """templates/ or rules/: inside the installed package, or beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else IMPORT_ROOT / name
