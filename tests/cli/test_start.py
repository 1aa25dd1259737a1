"""What a command starts before it imports the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemm_tuner.cli.start import times_here


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        ("-m 512 -n 512 -k 512", True),
        ("--gemm_size_file sizes.yaml --compare --profiler nsys", True),
        ("-m 512 -n 512 -k 512 --dry_run", False),
        ("-m 512 -n 512 -k 512 --arch=gfx942", False),
        ("--gemm_size_file sizes.yaml --cluster ray", False),
        ("-m 512 --explain gemm_tile_BM16", False),
        ("report runs/1", False),
        ("--help", False),
        ("", False),
    ],
)
def test_torch_is_imported_ahead_for_what_is_timed_here(line: str, begins: bool, tmp_path: Path) -> None:
    assert times_here(line.split(), [tmp_path / "none", tmp_path]) is begins


def test_without_a_gpu_nothing_is(tmp_path: Path) -> None:
    assert not times_here(["-m", "512"], [tmp_path / "none"])
