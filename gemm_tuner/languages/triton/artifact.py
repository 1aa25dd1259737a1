"""A compiled kernel as content: packed from one of Triton's caches, unpacked into another, where it is a hit.

A cache entry is a folder named by Triton's key, a hash over source, target, options and Triton itself, in which no path
counts. But ``__grp__NAME.json`` lists the entry's files by absolute path, and Triton takes an entry whose files are not
at these paths for a miss. So that file is not part of an artifact: ``unpack`` writes it for where the entry lies then.
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

# What a launch reads: metadata, and machine code of either backend. The intermediate texts of a compile stay behind.
SUFFIXES = (".json", ".cubin", ".hsaco")
ENTRY_NAME = re.compile("[A-Z2-7]{52}")  # base32 of a sha256
FILE_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


def entry_name(key: str) -> str:
    """The name of a cache entry by Triton's key (``CompiledKernel.hash``, 64 hex digits)."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


def pack(cache: Path, entry: str) -> Artifact:
    """An entry of a cache as content. Raises ValueError for one that holds no whole kernel, OSError for one that cannot
    be read."""
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
    """Triton's metadata with the libraries that were linked by their file names: they are part of the code by now."""
    values = json.loads(metadata)
    values["extern_libs"] = [[name, PurePath(path).name] for name, path in values.get("extern_libs") or ()]
    return json.dumps(values).encode()


def unpack(artifact: Artifact, cache: Path) -> None:
    """Makes a kernel an entry of this cache, in place of one of the same name; safe beside processes that read it.

    Raises ValueError for names that are none of a cache's, before anything is written; OSError when nothing can be.
    """
    names = [name for name, _ in artifact.files]
    if not ENTRY_NAME.fullmatch(artifact.entry) or not names or not all(map(FILE_NAME.fullmatch, names)):
        raise ValueError(f"no kernel of Triton's cache: {artifact.entry!r} with {names!r}")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache.resolve() / artifact.entry
    with locked(cache, fcntl.LOCK_SH):  # no eviction between the files
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            for name, content in artifact.files:
                written = Path(part) / name
                written.write_bytes(content)
                written.replace(folder / name)
        entry_group.write(folder, names[0], names)  # last: it makes the entry a hit
