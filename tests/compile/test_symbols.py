"""Scripts with the same kernels under other names, and one cache: each gets its own symbol."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from work import ROOT, compile_work, config_for, space_of

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages import kernel_cache
from gemm_tuner.languages.triton.symbol_naming import naming

BF16 = GemmProblem(4096, 4096, 4096)
DEVICE = space_of("sm_90").device
CONFIG = config_for(DEVICE, 16, 16, 16, split_k=2, warps=1)
OWN = {CONFIG.kernel_symbol, "split_k_reduce_SK2"}
OTHER = {f"{name}_b" for name in OWN}


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    """Templates whose kernels have the same source and other symbols, which their calls name."""
    folder = tmp_path / "templates"
    shutil.copytree(ROOT / "templates", folder)
    script = folder / "head_triton.j2"
    script.write_text(script.read_text().replace('constants["NAME"]', 'constants["NAME"] + "_b"'))
    for path, call in (("gemm_tile.py.j2", 'launches = [(config["binary"]'), ("_macros.j2", "return (symbol")):
        text = (folder / path).read_text()
        assert call in text
        (folder / path).write_text(text.replace(call, f'{call} + "_b"'))
    return folder


def symbols(cache: Path) -> list[str]:
    """Of all kernels in a cache, as they are in the code."""
    found = []
    for image in cache.rglob("*.cubin"):
        name = json.loads(image.with_suffix(".json").read_text(encoding="utf-8"))["name"]
        assert f"\0{name}\0".encode() in image.read_bytes()
        found.append(name)
    return found


def test_each_of_two_naming_schemes_has_its_own_symbols_in_the_users_cache(
    tmp_path: Path, renamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path / "user"))
    own = (ROOT / "templates", OWN)
    for (templates, wanted), again in ((own, False), ((renamed, OTHER), False), (own, True)):
        cache = kernel_cache.folder(naming(templates), tmp_path)
        (result,) = compile_work(DEVICE, [(BF16, CONFIG)], tmp_path / "run", templates=templates, cache=cache)
        assert (result.cached, set(symbols(cache))) == (again, wanted)


def test_a_hit_with_another_symbol_is_a_miss(tmp_path: Path, renamed: Path) -> None:
    """Where a cache is shared all the same, the entry is replaced."""
    cache = tmp_path / "cache"
    for templates, wanted in ((ROOT / "templates", OWN), (renamed, OTHER)):
        (fresh,) = compile_work(DEVICE, [(BF16, CONFIG)], tmp_path / "run", templates=templates, cache=cache)
        assert not fresh.cached and sorted(symbols(cache)) == sorted(wanted)
        (again,) = compile_work(DEVICE, [(BF16, CONFIG)], tmp_path / "run", templates=templates, cache=cache)
        assert again.cached and again.binary_hash == fresh.binary_hash


def test_a_hit_renews_the_entry(tmp_path: Path) -> None:
    """By which the longest unused are known."""
    cache = tmp_path / "cache"
    compile_work(DEVICE, [(BF16, CONFIG)], tmp_path / "run", cache=cache)
    entries = {image.parent for image in cache.rglob("*.cubin")}
    for path in entries:
        os.utime(path, (1.0, 1.0))
    compile_work(DEVICE, [(BF16, CONFIG)], tmp_path / "run", cache=cache)
    assert len(entries) == 2 and all(path.stat().st_mtime > 1.0 for path in entries)
