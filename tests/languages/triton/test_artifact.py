"""Compiled kernels as content: compiled in one folder, unpacked in another, found there and not compiled again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from samples import ROOT, device

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.language import Artifact, CompileTask
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.specialization import specialization
from gemm_tuner.languages.kernel_cache import identity, in_use
from gemm_tuner.languages.triton.artifact import pack, unpack
from gemm_tuner.languages.triton.entry_group import LOCATION
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.source import codegen

PROBLEM = GemmProblem(64, 64, 64)
LIMIT_BYTES = 2**40
NVIDIA = KernelConfig("gemm_tile", 32, 32, 32, 1, 2, 4, 2)  # split K: two kernels a call
AMD = replace(NVIDIA, SPLIT_K=1, matrix_instr_nonkdim=16, kpack=1)


def compiled(folder: Path, config: KernelConfig, target: Target) -> CompileResult:
    """What a fresh worker finds with its script and its cache in this folder."""
    script = codegen.write_script(ROOT / "templates", folder, "gemm_tile", PROBLEM, [config], target)
    task = CompileTask(script, config.kernel_symbol, specialization(PROBLEM, config, target), PROBLEM)
    with CompilePool(LANGUAGE, target, 1, folder / "cache", folder / "log.txt", folder) as pool:
        ((_, result),) = pool.run([task])
    assert result.status == Status.OK, result.message
    return result


def files_in(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("arch", "config", "kernels"), [("sm_90", NVIDIA, 2), ("gfx942", AMD, 1)])
def test_a_kernel_made_in_one_folder_is_a_hit_in_another(
    arch: str, config: KernelConfig, kernels: int, tmp_path: Path
) -> None:
    target = device(arch).target
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    made = compiled(here, config, target)
    assert not made.cached and len(set(made.entries)) == len(made.entries) == kernels
    artifacts = [pack(here / "cache", entry) for entry in made.entries]
    here.rename(tmp_path / "gone")
    for artifact in artifacts:
        unpack(artifact, there / "cache")
    before = files_in(there / "cache")

    found = compiled(there, config, target)
    assert found.cached and replace(found, cached=False, seconds=made.seconds) == made
    assert files_in(there / "cache") == before, "nothing is compiled and nothing is written"
    assert {pack(there / "cache", entry) for entry in found.entries} == set(artifacts)


def test_a_copied_entry_is_a_miss_until_it_is_unpacked_over(tmp_path: Path) -> None:
    """Triton lists the files of an entry by absolute path: why artifacts exist. A half entry is made whole, too."""
    target, config = device("sm_90").target, replace(NVIDIA, SPLIT_K=1)
    (tmp_path / "here").mkdir()
    made = compiled(tmp_path / "here", config, target)
    artifact = pack(tmp_path / "here" / "cache", made.entries[0])
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    (tmp_path / "here").rename(tmp_path / "gone")
    assert not compiled(tmp_path / "there", config, target).cached
    entry = tmp_path / "there" / "cache" / artifact.entry
    for path in entry.iterdir():
        path.write_bytes(path.read_bytes()[:9])
    unpack(artifact, tmp_path / "there" / "cache")
    assert compiled(tmp_path / "there", config, target).cached


def test_a_moved_cache_is_made_fit_for_its_new_place_once_no_run_uses_it(tmp_path: Path) -> None:
    target, config = device("sm_90").target, replace(NVIDIA, SPLIT_K=1)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    cache = there / "cache"
    with in_use(here / "cache", LANGUAGE, 0.0, LIMIT_BYTES):
        compiled(here, config, target)
    was = identity(here / "cache")
    here.rename(there)
    moved = files_in(cache)
    with in_use(cache, LANGUAGE, 0.0, LIMIT_BYTES):  # makes it fit; a run that begins beside it finds it so
        assert files_in(cache).keys() >= moved.keys() and files_in(cache) != moved
        now = files_in(cache)
        with in_use(cache, LANGUAGE, 0.0, LIMIT_BYTES):
            assert {name: now[name] for name in moved} == {name: files_in(cache)[name] for name in moved}
        assert compiled(there, config, target).cached
    assert identity(cache) != was


def test_a_cache_in_use_is_left_as_it_is(tmp_path: Path) -> None:
    """Its run may have it under another path, as where a folder is mounted twice."""
    cache = tmp_path / "cache"
    entry = entry_at(cache)
    elsewhere = json.dumps({"child_paths": {"k.cubin": "/elsewhere/k.cubin"}})
    with in_use(cache, LANGUAGE, 0.0, LIMIT_BYTES):
        (entry / "__grp__k.json").write_text(elsewhere)
        (cache / LOCATION).write_text("/elsewhere\n")
        with in_use(cache, LANGUAGE, 0.0, LIMIT_BYTES):
            assert (entry / "__grp__k.json").read_text() == elsewhere
    with in_use(cache, LANGUAGE, 0.0, LIMIT_BYTES):
        assert json.loads((entry / "__grp__k.json").read_text())["child_paths"] == {"k.cubin": str(entry / "k.cubin")}


def entry_at(cache: Path, name: str = "A" * 52) -> Path:
    """An entry with the files that Triton writes, and one of those that stay behind."""
    folder = cache / name
    folder.mkdir(parents=True)
    metadata = {"name": "symbol", "extern_libs": [["libdevice", "/opt/triton/libdevice.10.bc"]]}
    contents = {"k.source": b"loc(/home)", "k.cubin": b"code", "k.json": json.dumps(metadata).encode()}
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    paths = {file: str(folder / file) for file in contents}
    (folder / "__grp__k.json").write_text(json.dumps({"child_paths": paths}))
    return folder


def test_an_artifact_holds_what_a_launch_reads_and_no_path(tmp_path: Path) -> None:
    entry = entry_at(tmp_path)
    artifact = pack(tmp_path, entry.name)
    assert [name for name, _ in artifact.files] == ["k.json", "k.cubin"]
    assert json.loads(artifact.files[0][1]) == {"name": "symbol", "extern_libs": [["libdevice", "libdevice.10.bc"]]}
    assert artifact.files[1][1] == b"code"


def test_what_is_no_whole_kernel_is_not_packed(tmp_path: Path) -> None:
    entry = entry_at(tmp_path)
    (entry / "k.cubin").unlink()
    with pytest.raises(OSError, match="cubin"):
        pack(tmp_path, entry.name)
    (entry / "__grp__k.json").write_text(json.dumps({"child_paths": {"k.json": "k.json"}}))
    with pytest.raises(ValueError, match="no machine code"):
        pack(tmp_path, entry.name)
    (entry / "__grp__k.json").unlink()
    with pytest.raises(ValueError, match="0 kernels"):
        pack(tmp_path, entry.name)


@pytest.mark.parametrize(
    ("entry", "file"), [("../" + "A" * 49, "k.json"), ("A" * 52, "../k.json"), ("A" * 52, ""), ("A" * 52, "/tmp/k")]
)
def test_an_artifact_writes_nothing_outside_its_entry(entry: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no kernel"):
        unpack(Artifact(entry, ((file, b""),)), tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []
