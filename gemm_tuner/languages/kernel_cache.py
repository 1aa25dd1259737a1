"""The cache of compiled kernels that all runs of a user share: its location, its users, and its size limit.

Each kernel has an entry, a folder with a few files. The modification time of the folder is the time of its last use;
compile workers update it on a hit. Every active run holds a lock on a file in the cache. Entries that were used since
the start of the oldest active run are never removed.

The locks are of fcntl, since filelock has no shared ones, and leaves the file of a lock behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import Language
from gemm_tuner.system.documents import write_text_atomically

VARIABLE = "GEMM_TUNER_CACHE_DIR"
KERNELS = "kernels"
# A random text in each cache, replaced whenever an entry is removed, so that a resumed run notices that compiled
# kernels may be missing.
CACHE_ID = "cache_id.txt"
LOCK = ".lock"
# Beside the caches: the bytes of all entries, and files_below, when entries were last looked into.
MEASURED = "measured.txt"
MOST_BYTES = 2**22  # of an entry; the largest of 2850 has 0.9 MiB
USERS = ".users"
REMOVED = ".removed-"
CLOCK_S = 10.0  # how far the file system's clock may be behind the machine's


def folder(cache_name: str, run_root: Path) -> Path:
    """The folder of the cache ``cache_name`` (``Language.cache_name``): below the user's cache folder, or below
    ``run_root`` if that cannot be written."""
    own = f"{KERNELS}/{cache_name}"
    asked = os.environ.get(VARIABLE, "")
    root = Path(asked) if asked else platformdirs.user_cache_path("gemm_tuner", appauthor=False)
    path = (root / own).resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        return run_root / own


def identity(cache: Path) -> str:
    """A text that identifies the content of a cache: it changes when the cache is emptied or moved, or loses an entry.
    Raises CannotWrite when a new identity cannot be written."""
    path = cache / CACHE_ID
    if not path.exists():
        write_text_atomically(path, secrets.token_hex(16) + "\n")
    return f"{path.read_text('utf-8', 'replace').strip()} in {cache.resolve()}"


@contextlib.contextmanager
def locked(cache: Path, kind: int) -> Iterator[None]:
    """Holds the cache's lock: ``fcntl.LOCK_SH`` to mark an entry as used, ``fcntl.LOCK_EX`` to remove one."""
    with (cache / LOCK).open("a") as stream:
        fcntl.flock(stream, kind)
        yield


def mark_used(entry: Path) -> bool:
    """Updates an entry's time of last use; False if the entry has been removed."""
    try:
        with locked(entry.parent, fcntl.LOCK_SH):
            os.utime(entry)
            return True
    except OSError:
        return entry.is_dir()  # a read-only cache cannot lose the entry


@contextlib.contextmanager
def in_use(cache: Path, language: Language, since: float, limit_bytes: int) -> Iterator[None]:
    """Registers a run as a user of the cache while the block runs.

    Entries used after ``since`` (seconds of ``time.time``) are then not removed by any process. If no other run uses
    the cache, it is first adapted to its present path (``Language.adopt_cache``). At the end, unless by an exception,
    this cache and its siblings are reduced to ``limit_bytes`` in total, if they may hold more.
    """
    users = cache / USERS
    users.mkdir(parents=True, exist_ok=True)
    path = users / f"{os.getpid()}-{secrets.token_hex(8)}"
    with locked(cache, fcntl.LOCK_EX):
        if _runs_since(cache) is None:
            language.adopt_cache(cache)
        stream = path.open("w")
        fcntl.flock(stream, fcntl.LOCK_EX)
        os.utime(path, (since - CLOCK_S, since - CLOCK_S))
    with stream:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError, EnvironmentFault):  # results do not depend on the size of the cache
        if may_exceed(cache.parent, limit_bytes):
            evict(cache.parent, limit_bytes)


def caches_below(root: Path) -> list[Path]:
    return [cache for cache in root.iterdir() if (cache / LOCK).is_file()]


def may_exceed(root: Path, limit_bytes: int) -> bool:
    """Whether the caches below ``root`` may hold more, as far as it is seen without looking into each entry, of which
    there may be tens of thousands: what they held when that was last done, and MOST_BYTES for each entry since."""
    try:
        measured_bytes, measured = map(int, (root / MEASURED).read_text().split())
    except (OSError, ValueError):
        return True
    new = files_below(root) - measured
    return new < 0 or measured_bytes + MOST_BYTES * new > limit_bytes  # someone has emptied it, and others may fill it


def files_below(root: Path) -> int:
    """The number of entries and of other files in all caches."""
    return sum(len(os.listdir(cache)) for cache in caches_below(root))


@dataclass(frozen=True, order=True)
class Entry:
    """One kernel of the cache. used: time of last use, seconds, by the clock of the file system. is_library: it holds a
    shared library, which launchers may load at any time, so it is kept while any run is active."""

    used: float
    path: Path
    size_bytes: int
    is_library: bool


def evict(root: Path, limit_bytes: int) -> int:
    """Removes entries of all caches below ``root``, least recently used first, until the rest fits ``limit_bytes``.
    Entries that active runs may use stay. Returns the number of removed entries."""
    there = files_below(root)  # what comes from now on counts as new
    entries = sorted(entry for cache in caches_below(root) for entry in entries_of(cache))
    excess, removed = sum(entry.size_bytes for entry in entries) - limit_bytes, 0
    for entry in entries:
        if excess <= 0:
            break
        if _remove(entry):
            excess, removed = excess - entry.size_bytes, removed + 1
    write_text_atomically(root / MEASURED, f"{excess + limit_bytes} {there - removed}\n")
    return removed


def entries_of(cache: Path) -> Iterator[Entry]:
    """The entries of one cache, including remains of an eviction that was killed."""
    for path in cache.iterdir():
        if path.name == USERS or not path.is_dir():
            continue
        try:
            used, files = path.stat().st_mtime, [(one.name, one.stat()) for one in path.iterdir()]
        except FileNotFoundError:
            continue
        size = sum(512 * state.st_blocks for _, state in files)
        yield Entry(used, path, size, any(name.endswith(".so") for name, _ in files))


def _remove(entry: Entry) -> bool:
    """Removes an entry unless it was used since it was listed or an active run may need it; returns whether it did.

    The identity of the cache is removed first, so that a run that is resumed later requests all its kernels again.
    """
    cache = entry.path.parent
    with locked(cache, fcntl.LOCK_EX):
        since = _runs_since(cache)
        if since is not None and (entry.is_library or entry.used >= since):
            return False
        if not entry.path.is_dir() or entry.path.stat().st_mtime != entry.used:
            return False
        (cache / CACHE_ID).unlink(missing_ok=True)
        gone = entry.path.with_name(f"{REMOVED}{secrets.token_hex(8)}")
        entry.path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _runs_since(cache: Path) -> float | None:
    """The start of the oldest active run; None without active runs. Removes the files of runs that have ended."""
    begins = []
    for path in (cache / USERS).iterdir():
        with contextlib.suppress(FileNotFoundError), path.open("r") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                begins.append(path.stat().st_mtime)
            else:
                path.unlink(missing_ok=True)
    return min(begins, default=None)
