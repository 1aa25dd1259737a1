"""The file by which Triton lists the files of a cache entry: by absolute paths, so that an entry holds at one place."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from gemm_tuner.system.documents import write_text_atomically

GROUP = "__grp__"
# In each cache: where it lay when its entries were made.
LOCATION = "location.txt"


def write(folder: Path, metadata: str, names: Iterable[str]) -> None:
    """Lists an entry's files where it lies now, which makes it a hit. metadata: the file that Triton looks up."""
    paths = {name: str(folder / name) for name in names}
    write_text_atomically(folder / f"{GROUP}{metadata}", json.dumps({"child_paths": paths}))


def relocate(cache: Path) -> int:
    """Makes the entries of a cache hits again after it was moved; returns how many were not. Reads none where the cache
    lies as it did. Nothing else may use it meanwhile. Raises CannotWrite."""
    here, marker = cache.resolve(), cache / LOCATION
    if marker.exists() and marker.read_text("utf-8", "replace").strip() == str(here):
        return 0
    moved = 0
    for group in here.glob(f"*/{GROUP}*.json"):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # no group of Triton's: a miss
            paths = dict(json.loads(group.read_text("utf-8", "replace"))["child_paths"])
            if paths != {name: str(group.with_name(name)) for name in paths}:
                write(group.parent, group.name.removeprefix(GROUP), paths)
                moved += 1
    write_text_atomically(marker, f"{here}\n")
    return moved
