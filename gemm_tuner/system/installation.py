"""The folders of the installed package, of templates/ and of rules/."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import gemm_tuner

PACKAGE = Path(gemm_tuner.__file__).resolve().parent
# The folder from which the package is imported.
IMPORT_ROOT = PACKAGE.parent


def import_path(environ: Mapping[str, str] = os.environ) -> str:
    """The PYTHONPATH of a process that imports this package wherever it lies; that of ``environ`` stays behind it."""
    return os.pathsep.join(filter(None, [str(IMPORT_ROOT), environ.get("PYTHONPATH")]))


def data_folder(name: str) -> Path:
    """The folder templates/ or rules/: inside the installed package, or next to it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else IMPORT_ROOT / name
