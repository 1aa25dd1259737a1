"""A hash over source files, by which two installations are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def sources_sha(
    folder: Path, patterns: Iterable[str], *, only: tuple[str, ...] = ("",), but: tuple[str, ...] = ()
) -> str:
    """12 hex digits over the names and contents of the files of a folder. only, but: prefixes of names to include, and
    to exclude."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        name = path.relative_to(folder).as_posix()
        if name.startswith(only) and not name.startswith(but):
            digest.update(f"{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
