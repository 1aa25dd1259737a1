"""The folder of compiled kernels, which all runs of a user share: where it lies, who uses it, and how it is bounded.

There is an entry, a folder of a few files, for each kernel. When an entry was last used is the time of its folder,
which compile workers renew on a hit. A run says that it is under way by a lock file; what was used since it began is
never removed.
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

from gemm_tuner.core.language import Language
from gemm_tuner.system.documents import write_text_atomically

VARIABLE = "GEMM_TUNER_CACHE_DIR"
KERNELS = "kernels"
# In each cache: a text that changes whenever something is removed, so that no run takes for granted what is gone.
CACHE_ID = "cache_id.txt"
LOCK = ".lock"
USERS = ".users"
REMOVED = ".removed-"
CLOCK_S = 10.0  # that the file system's clock may be behind the machine's


def folder(cache_name: str, run_root: Path) -> Path:
    """Where the kernels of a cache are kept, by the name that their language gives it; in the run's own folder where
    the user's cache cannot be written."""
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
    """Names what a cache holds: another one after it was emptied or moved, or after something was removed. Raises
    CannotWrite when a new one cannot be marked."""
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
    """Renews an entry's time; False when it has been removed."""
    try:
        with locked(entry.parent, fcntl.LOCK_SH):
            os.utime(entry)
            return True
    except OSError:
        return entry.is_dir()  # a cache that may be read and not written loses nothing


@contextlib.contextmanager
def in_use(cache: Path, language: Language, since: float, limit_bytes: int) -> Iterator[None]:
    """While the block runs, nothing used after ``since`` (seconds of ``time.time``) is removed by anybody. When it ends
    without an exception, the caches beside this one are cut to ``limit_bytes`` in all. A cache that was moved is made
    fit for its new place first, where no run uses it."""
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
    with contextlib.suppress(OSError):  # a cache that is too large harms no result
        evict(cache.parent, limit_bytes)


@dataclass(frozen=True, order=True)
class Entry:
    """What Triton keeps of one kernel. used: when it was last, seconds as the file system counts them."""

    used: float
    path: Path
    size_bytes: int
    is_library: bool


def evict(root: Path, limit_bytes: int) -> int:
    """Removes whole entries of all caches below ``root``, longest unused first, until the rest takes ``limit_bytes``.
    Leaves what runs under way use. Returns how many it removed."""
    entries = sorted(entry for cache in root.iterdir() if (cache / LOCK).is_file() for entry in entries_of(cache))
    excess, removed = sum(entry.size_bytes for entry in entries) - limit_bytes, 0
    for entry in entries:
        if excess <= 0:
            break
        if _remove(entry):
            excess, removed = excess - entry.size_bytes, removed + 1
    return removed


def entries_of(cache: Path) -> Iterator[Entry]:
    """The entries of one cache; also what an eviction that was killed has left."""
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
    """Removes an entry that is as it was listed and that no run under way can need; says whether it did.

    The cache's identity goes first: a run that goes on later asks for all its kernels again.
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
    """From when on the runs under way have used entries; None without one. Forgets runs that have died."""
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
