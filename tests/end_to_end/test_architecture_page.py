"""docs/architecture.md and its picture against the packages and files that there are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
DRAWING = ROOT / "docs" / "make_architecture.py"


def test_the_picture_is_what_contract_docstrings_and_imports_give() -> None:
    drawn = runpy.run_path(str(DRAWING))["picture"]()
    assert (ROOT / "docs" / "packages.svg").read_text(encoding="utf-8") == drawn, f"python {DRAWING.name} draws it anew"


def test_the_picture_has_every_package() -> None:
    packages = {path.parent.name for path in (ROOT / "gemm_tuner").glob("*/__init__.py")}
    assert set(runpy.run_path(str(DRAWING))["read_packages"]().order) == packages


def test_the_files_that_the_page_names_are_there() -> None:
    named = re.findall(r"`([\w./]+/[\w./<>*]*)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 20
    for name in named:
        pattern = re.sub(r"<\w+>", "*", name)
        places = [ROOT, ROOT / "gemm_tuner"]
        assert any(list(place.glob(pattern.rstrip("/"))) for place in places), f"{name} is not there"
