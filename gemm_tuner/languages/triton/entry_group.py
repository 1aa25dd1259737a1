"""The file ``__grp__NAME.json``, in which Triton lists the files of a cache entry by absolute path. Because of it, an
entry is valid at one path only."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from gemm_tuner.system.documents import write_text_atomically

GROUP = "__grp__"
# A file in each cache: the path of the cache for which its group files were written.
LOCATION = "location.txt"


def write(folder: Path, metadata: str, names: Iterable[str]) -> None:
    """Writes the group file for the entry's present path, which makes it a hit. metadata: the file Triton looks up."""
    paths = {name: str(folder / name) for name in names}
    write_text_atomically(folder / f"{GROUP}{metadata}", json.dumps({"child_paths": paths}))


def relocate(cache: Path) -> int:
    """Rewrites the group files of a cache that was moved; returns how many it rewrote. A cache that was not moved is
    not read. No other process may use the cache during the call. Raises CannotWrite."""
    here, marker = cache.resolve(), cache / LOCATION
    if marker.exists() and marker.read_text("utf-8", "replace").strip() == str(here):
        return 0
    moved = 0
    for group in here.glob(f"*/{GROUP}*.json"):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # not a group file: stays a miss
            paths = dict(json.loads(group.read_text("utf-8", "replace"))["child_paths"])
            if paths != {name: str(group.with_name(name)) for name in paths}:
                write(group.parent, group.name.removeprefix(GROUP), paths)
                moved += 1
    write_text_atomically(marker, f"{here}\n")
    return moved
