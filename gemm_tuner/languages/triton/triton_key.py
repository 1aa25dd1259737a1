"""Triton's hash of itself, kept between runs: Triton reads all of its own code for it, 0.3 GB, and imports itself."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.system.documents import write_text_atomically

FILE = "triton_key.json"
# The folders and files, below triton's, whose text the key is made of.
PARTS = ("__init__.py", "runtime/cache.py", "compiler", "backends", "language", "_C")
SUFFIXES = (".py", ".so", ".pyd")


def known_triton_key(folder: Path) -> str:
    """The value of ``triton.runtime.cache.triton_key()``.

    Taken from a file in ``folder`` where names, sizes and times of change of Triton's files are those of when it was
    written; such a call imports no triton. Otherwise computed and written, if the folder can be written.
    """
    stamp = installation_stamp()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if kept["stamp"] == stamp:
            return str(kept["key"])
    from triton.runtime.cache import triton_key

    key = str(triton_key())
    with contextlib.suppress(OSError, EnvironmentFault):
        write_text_atomically(folder / FILE, json.dumps({"stamp": stamp, "key": key}))
    return key


def installation_stamp() -> str:
    """SHA-256 over path, size in bytes and time of change in ns of Triton's files; empty where triton is not found."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return ""
    root, digest = Path(found.origin).parent, hashlib.sha256()
    paths = [root / part for part in PARTS]
    files = [path for path in paths if path.is_file()]
    files += [path for folder in paths if folder.is_dir() for path in folder.rglob("*") if path.suffix in SUFFIXES]
    for path in sorted(files):
        facts = path.stat()
        digest.update(f"{path} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()
