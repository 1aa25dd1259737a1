"""Several languages of one run: whose entry of the cache is whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemm_tuner.core.language import language_of
from gemm_tuner.languages.cute import library
from gemm_tuner.languages.together import named, names_of

ENTRY = "0a" * 32  # the name of an entry of CuTe DSL


def test_a_kernel_of_another_language_is_packed_and_unpacked(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    together = named(("triton", "cute"))
    library.put(here, ENTRY, [(name, name.encode()) for name in library.FILES])
    together.unpack(together.pack(here, ENTRY), there)
    assert [(there / ENTRY / name).read_bytes() for name in library.FILES] == [b"kernel.json", b"kernel.so"]


def test_what_no_language_knows_is_refused(tmp_path: Path) -> None:
    together = named(("triton", "cute"))
    with pytest.raises(ValueError):
        together.pack(tmp_path, "A" * 52)


def test_languages_have_names_that_make_them_again() -> None:
    assert names_of(named(("triton", "cute"))) == ("triton", "cute")
    assert named(("triton",)) is language_of("triton") and names_of(language_of("cute")) == ("cute",)
