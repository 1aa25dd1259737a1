"""Files that sizes are collected from."""

from __future__ import annotations

from pathlib import Path

from samples import ROOT

from gemm_tuner.gemm.problem import Layout
from gemm_tuner.gemm.size_sources.collect import Sizes, collect
from gemm_tuner.gemm.size_sources.found import CollectOptions

DATA = ROOT / "tests" / "data" / "size_sources"
ROW, COL = Layout.ROW, Layout.COL
FEW = CollectOptions(m_values=(1, 64))


def sizes_of(name: str, asked: CollectOptions = FEW) -> Sizes:
    return collect(DATA / name, asked)


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path
