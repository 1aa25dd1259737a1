"""A hash over source files, by which two installations are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def files_sha(paths: Iterable[Path]) -> str:
    """12 hex digits over the contents of files, in order; a file that cannot be read is empty."""
    digest = hashlib.sha256()
    for path in paths:
        with suppress(OSError):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


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
