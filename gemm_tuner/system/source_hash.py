"""A hash over source files, by which two installations are told apart."""

from __future__ import annotations

import glob
import hashlib
import os
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
    # By names, not by paths: a run hashes the package twice before it begins, and paths take five times as long.
    found = {name for pattern in patterns for name in glob.glob(pattern, root_dir=folder, recursive=True)}
    names = {name.replace(os.sep, "/") for name in found}
    for name in sorted(name for name in names if name.startswith(only) and not name.startswith(but)):
        with open(os.path.join(folder, name), "rb") as file:
            digest.update(f"{name}\n".encode() + file.read())
    return digest.hexdigest()[:12]
