"""Where compiled kernels lie, and what is removed when they take too much."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from samples import ROOT, TEMPLATES

from gemm_tuner.languages import kernel_cache
from gemm_tuner.languages.kernel_cache import evict, identity, in_use, mark_used, may_exceed
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.languages.triton.symbol_naming import naming
from gemm_tuner.store import run_folder

ENTRY_BYTES = 64 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


def cache_at(root: Path, name: str = "a") -> Path:
    """A cache that a run has used."""
    cache = root / name
    cache.mkdir(parents=True)
    with in_use(cache, LANGUAGE, time.time(), 2**40):
        pass
    return cache


def entry(cache: Path, name: str, age_s: float, file: str = "kernel.cubin") -> Path:
    """An entry as Triton makes it, last used ``age_s`` ago."""
    path = cache / name
    path.mkdir()
    (path / file).write_bytes(os.urandom(ENTRY_BYTES))
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def left(root: Path) -> set[str]:
    return {path.name for cache in root.iterdir() if cache.is_dir() for path in cache.iterdir() if len(path.name) == 2}


def test_the_cache_is_the_users_and_shared_by_all_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMM_TUNER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    first, second = (kernel_cache.folder(naming(TEMPLATES), tmp_path / run) for run in "12")
    assert first == second and first.is_dir() and first.is_relative_to(tmp_path / "xdg" / "gemm_tuner")
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "moved"))
    assert kernel_cache.folder(naming(TEMPLATES), tmp_path / "1").is_relative_to(tmp_path / "moved")


def test_a_home_that_cannot_be_written_leaves_the_runs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "file" / "cache"))
    folder = run_folder.create(tmp_path / "results", "abcd1234", naming(TEMPLATES))
    assert folder.cache.is_relative_to(folder.root) and folder.cache.is_dir()
    with in_use(folder.cache, LANGUAGE, time.time(), 0):
        entry(folder.cache, "e1", 0.0)


def test_other_templates_have_another_cache(tmp_path: Path) -> None:
    """A symbol is made by the templates, and is not in Triton's key."""
    other = tmp_path / "templates"
    shutil.copytree(TEMPLATES, other)
    assert naming(other) == naming(TEMPLATES)
    script = other / "head_triton.j2"
    script.write_text(script.read_text().replace('constants["NAME"]', 'constants["NAME"] + "_b"'))
    renamed = naming(other)
    assert renamed != naming(TEMPLATES)
    tile = other / "gemm_tile.py.j2"
    tile.write_text(tile.read_text() + "# an edit that Triton sees itself, or need not see\n")
    assert naming(other) == renamed
    tile.write_text(tile.read_text().replace("repr=symbol_name", "repr=lambda of: 'x'"))
    changed = naming(other)
    tile.write_text(tile.read_text().replace("'x'", "'y'"))
    assert len({naming(other), changed, renamed}) == 3


@pytest.mark.parametrize("name", ["results", "elsewhere"])
def test_scripts_go_where_the_output_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The default keeps the project's own folder beside it; nothing else is written into the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = run_folder.create(Path(name), "abcd1234", naming(TEMPLATES))
    generated = tmp_path / "generated" if name == "results" else tmp_path / name / "generated"
    assert folder.scripts.parent == generated and folder.scripts.is_dir()
    assert (tmp_path / "generated").exists() == (name == "results")
    assert run_folder.find(Path(name), "abcd1234", naming(TEMPLATES)) is None  # it has no store
    folder.store.touch()
    assert run_folder.find(Path(name), "abcd1234", naming(TEMPLATES)) == folder


def test_a_cache_is_not_looked_through_before_it_can_be_full(root: Path) -> None:
    """Many entries are small: a limit is for what was measured, and what came since at its largest."""
    cache, limit_bytes = cache_at(root), 2 * kernel_cache.MOST_BYTES  # measured, empty
    assert not may_exceed(root, limit_bytes)
    for number in range(4):
        entry(cache, f"e{number}", 100.0)
    assert may_exceed(root, limit_bytes)
    with in_use(cache, LANGUAGE, time.time(), limit_bytes):  # measures it
        pass
    assert left(root) == {"e0", "e1", "e2", "e3"} and not may_exceed(root, limit_bytes)
    with in_use(cache, LANGUAGE, time.time(), 2 * ENTRY_BYTES):
        pass
    assert len(left(root)) == 2
    for number in (5, 6):
        entry(cache, f"e{number}", 100.0)
    with in_use(cache, LANGUAGE, time.time(), 3 * ENTRY_BYTES):
        pass
    assert len(left(root)) == 3
    shutil.rmtree(cache / min(left(root)))
    assert may_exceed(root, 2**40)
    (root / kernel_cache.MEASURED).write_text("?")
    assert may_exceed(root, 2**40)


def test_a_cache_is_the_same_until_it_is_emptied_or_cut(root: Path) -> None:
    cache = cache_at(root)
    first = identity(cache)
    assert first and identity(cache) == first
    (cache / kernel_cache.CACHE_ID).unlink()
    second = identity(cache)
    entry(cache, "e1", 100)
    assert evict(root, 2**40) == 0 and identity(cache) == second != first
    assert evict(root, 0) == 1 and identity(cache) != second


def test_the_longest_unused_go_first_and_whole(root: Path) -> None:
    old, new = cache_at(root, "old"), cache_at(root, "new")
    entry(old, "e1", 500)
    entry(new, "e2", 400)
    kept = entry(old, "e3", 300)
    entry(new, "e4", 200)
    assert mark_used(kept)  # a hit: it is the last now
    assert evict(root, 2 * ENTRY_BYTES) == 2
    assert left(root) == {"e3", "e4"} and (kept / "kernel.cubin").stat().st_size == ENTRY_BYTES
    assert evict(root, ENTRY_BYTES) == 1 and left(root) == {"e3"}
    assert not any(path.name.startswith(kernel_cache.REMOVED) for path in old.iterdir())


def test_the_end_of_a_run_cuts_the_cache_its_failure_does_not(root: Path) -> None:
    cache = cache_at(root)
    entry(cache, "e1", 100)
    with pytest.raises(KeyboardInterrupt), in_use(cache, LANGUAGE, time.time(), 0):
        raise KeyboardInterrupt
    assert left(root) == {"e1"}
    with in_use(cache, LANGUAGE, time.time(), 0):
        entry(cache, "e2", 0)
    assert left(root) == set()


USER = """
import sys, time
from pathlib import Path
from gemm_tuner.languages.kernel_cache import in_use
from gemm_tuner.languages.triton.language import LANGUAGE
with in_use(Path(sys.argv[1]), LANGUAGE, float(sys.argv[2]), 2**40):
    print("in use", flush=True)
    sys.stdin.read()
"""


def test_nothing_that_another_process_uses_is_removed_until_it_dies(root: Path) -> None:
    """It began 200 s ago: what was used since is its own, and so are libraries, whose use leaves no mark."""
    cache = cache_at(root)
    for name, age_s, file in (("e1", 1000, "k.cubin"), ("e2", 100, "k.cubin"), ("e3", 1000, "launcher.so")):
        entry(cache, name, age_s, file)
    command = [sys.executable, "-c", USER, str(cache), str(time.time() - 200)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None and user.stdout.readline() == "in use\n"
        assert evict(root, 0) == 1 and left(root) == {"e2", "e3"}
        user.kill()
        user.wait()
        assert evict(root, 0) == 2 and left(root) == set()


def test_an_entry_used_while_it_is_being_chosen_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_at(root)
    path = entry(cache, "e1", 1000)
    (listed,) = kernel_cache.entries_of(cache)
    assert mark_used(path)
    assert not kernel_cache._remove(listed) and path.is_dir()
    shutil.rmtree(path)
    assert not mark_used(path)


def test_marking_waits_for_a_removal(root: Path) -> None:
    """The lock that removals hold is the one that a hit takes: between a hit's look and its mark nothing goes."""
    cache = cache_at(root)
    path = entry(cache, "e1", 1000)
    with kernel_cache.locked(cache, fcntl.LOCK_SH), (cache / kernel_cache.LOCK).open("a") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert mark_used(path)  # hits do not wait for each other


def test_what_another_run_adds_while_entries_are_looked_into_counts_as_new(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, listed = cache_at(root), kernel_cache.entries_of
    entry(cache, "e1", 100.0)

    def listed_before(of: Path) -> list[kernel_cache.Entry]:
        found = list(listed(of))
        entry(cache, "e2", 0.0)
        return found

    monkeypatch.setattr(kernel_cache, "entries_of", listed_before)
    assert evict(root, 2**40) == 0
    assert may_exceed(root, kernel_cache.MOST_BYTES) and not may_exceed(root, 2 * kernel_cache.MOST_BYTES)


def test_a_run_ends_well_where_the_caches_folder_cannot_be_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_at(root)
    (root / kernel_cache.MEASURED).unlink()
    (root / kernel_cache.MEASURED).mkdir()  # nothing can be written in its place
    with in_use(cache, LANGUAGE, time.time(), 2**40):
        pass
    assert may_exceed(root, 2**40)
