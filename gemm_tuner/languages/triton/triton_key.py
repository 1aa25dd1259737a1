"""Caches Triton's hash of its own code between runs; computing it reads 0.3 GB and imports Triton."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.system.documents import write_text_atomically

FILE = "triton_key.json"
# Files and folders in the triton package that the key is computed from.
PARTS = ("__init__.py", "runtime/cache.py", "compiler", "backends", "language", "_C")
SUFFIXES = (".py", ".so", ".pyd")


def known_triton_key(folder: Path) -> str:
    """The value of ``triton.runtime.cache.triton_key()``.

    It is read from a file in ``folder``, without importing Triton, if names, sizes and modification times of Triton's
    files are the same as when it was written. Otherwise it is computed, and written if ``folder`` is writable.
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
    """SHA-256 over path, size in bytes and modification time in ns of Triton's files; "" if Triton is not installed."""
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
