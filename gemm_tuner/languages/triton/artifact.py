"""Moves compiled kernels between Triton caches: packed from one, unpacked into another, where they are cache hits.

A cache entry is a folder named by Triton's key, a hash over source, target, options and Triton itself, which does not
depend on paths. But the file ``__grp__NAME.json`` lists the entry's files by absolute path, and Triton treats an entry
whose files are not at these paths as a miss. So this file is not part of an artifact; ``unpack`` writes a new one.
"""

from __future__ import annotations

import base64
import fcntl
import json
import re
import tempfile
from pathlib import Path, PurePath

from gemm_tuner.core.language import Artifact
from gemm_tuner.languages.kernel_cache import locked
from gemm_tuner.languages.triton import entry_group
from gemm_tuner.languages.triton.entry_group import GROUP

# The files that a launch reads: metadata and machine code. Intermediate representations are not packed.
SUFFIXES = (".json", ".cubin", ".hsaco")
ENTRY_NAME = re.compile("[A-Z2-7]{52}")  # base32 of a sha256
FILE_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


def entry_name(key: str) -> str:
    """The name of a cache entry from Triton's key (``CompiledKernel.hash``, 64 hex digits)."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


def pack(cache: Path, entry: str) -> Artifact:
    """Reads a cache entry. Raises ValueError if it does not hold a complete kernel, OSError if it cannot be read."""
    folder = cache / entry
    groups = list(folder.glob(f"{GROUP}*.json"))
    if len(groups) != 1:
        raise ValueError(f"{folder} holds {len(groups)} kernels")
    metadata = groups[0].name.removeprefix(GROUP)
    names = [name for name in json.loads(groups[0].read_text("utf-8"))["child_paths"] if name.endswith(SUFFIXES)]
    code = sorted(name for name in names if name != metadata)
    if not code or metadata not in names:
        raise ValueError(f"{folder} holds no machine code with its metadata")
    without_paths = _without_paths((folder / metadata).read_text("utf-8"))
    return Artifact(entry, ((metadata, without_paths), *((name, (folder / name).read_bytes()) for name in code)))


def _without_paths(metadata: str) -> bytes:
    """Triton's metadata with the paths of linked libraries reduced to file names; their code is already in the
    binary."""
    values = json.loads(metadata)
    values["extern_libs"] = [[name, PurePath(path).name] for name, path in values.get("extern_libs") or ()]
    return json.dumps(values).encode()


def unpack(artifact: Artifact, cache: Path) -> None:
    """Adds a kernel to a cache, replacing an entry of the same name. Other processes may read the cache meanwhile.

    Raises ValueError for invalid entry or file names, before anything is written; OSError if the cache cannot be
    written.
    """
    names = [name for name, _ in artifact.files]
    if not ENTRY_NAME.fullmatch(artifact.entry) or not names or not all(map(FILE_NAME.fullmatch, names)):
        raise ValueError(f"no kernel of Triton's cache: {artifact.entry!r} with {names!r}")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache.resolve() / artifact.entry
    with locked(cache, fcntl.LOCK_SH):  # prevents an eviction before all files are written
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            for name, content in artifact.files:
                written = Path(part) / name
                written.write_bytes(content)
                written.replace(folder / name)
        entry_group.write(folder, names[0], names)  # last, because this file makes the entry a hit
