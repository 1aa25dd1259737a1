"""The folders of the installed package, of templates/ and of rules/."""

from __future__ import annotations

from pathlib import Path

import gemm_tuner

PACKAGE = Path(gemm_tuner.__file__).resolve().parent
# The folder for the PYTHONPATH of a process that imports the package.
IMPORT_ROOT = PACKAGE.parent


def data_folder(name: str) -> Path:
    """The folder templates/ or rules/: inside the installed package, or next to it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else IMPORT_ROOT / name
