"""Triton's hash of itself is read from a file while Triton is the same, and only then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT
from triton.runtime import cache as triton_cache

from gemm_tuner.languages.triton import triton_key
from gemm_tuner.languages.triton.triton_key import FILE, known_triton_key


def test_it_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = triton_cache.triton_key()
    assert known_triton_key(tmp_path) == key
    monkeypatch.setattr(triton_cache, "triton_key", lambda: "computed anew")
    assert known_triton_key(tmp_path) == key


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stamp": "another"}', '{"stamp": "another", "key": "old"}'])
def test_a_file_of_another_triton_or_a_broken_one_is_not_believed(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_cache, "triton_key", lambda: "computed anew")
    (tmp_path / FILE).write_text(text)
    assert known_triton_key(tmp_path) == "computed anew"
    assert json.loads((tmp_path / FILE).read_text())["key"] == "computed anew"


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_cache, "triton_key", lambda: "computed anew")
    assert known_triton_key(tmp_path / "missing") == "computed anew"
    assert not (tmp_path / "missing").exists()


def test_a_launcher_takes_it_from_beside_its_cache(tmp_path: Path) -> None:
    """In a process of its own, as launchers are."""
    (tmp_path / FILE).write_text(json.dumps({"stamp": triton_key.installation_stamp(), "key": "known"}))
    text = (
        "from gemm_tuner.languages.triton import language; language.provide_descriptor_memory = lambda: None; "
        "language.LANGUAGE.start_launcher('cuda'); import triton; print(triton.runtime.cache.triton_key())"
    )
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "known\n", done.stderr


def test_each_file_of_triton_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``triton_key`` reads is below PARTS: the stamp differs when any such file was changed."""
    root = tmp_path / "triton"
    files = ("__init__.py", "runtime/cache.py", "compiler/code.py", "backends/amd/driver.py", "language/core.py")
    for name in (*files, "_C/libtriton.so"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    spec = type("Spec", (), {"origin": str(root / "__init__.py")})()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    seen = {triton_key.installation_stamp()}
    for name in (*files, "_C/libtriton.so"):
        (root / name).write_text("changed")
        seen.add(triton_key.installation_stamp())
    assert len(seen) == 1 + len(files) + 1
