"""A kernel family is one template, its axes, and one module: ``gemm_rows``, made from gemm_tile's template, goes
through the whole tuner without a line of the project changed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fault_runs import ROOT, Machine, small_space, statuses_of

from gemm_tuner.core.records import Verified
from gemm_tuner.store import results

AXES = {
    "BLOCK_SIZE_M": "[16, 32]", "BLOCK_SIZE_N": "[16]", "BLOCK_SIZE_K": "[32]", "GROUP_SIZE_M": "[1]",
    "SPLIT_K": "[1]", "num_warps": "[1]", "num_stages": "[2]",
}  # fmt: skip
MODULE = """
from gemm_tuner.gemm.families.family import Family

FAMILY = Family("gemm_rows", takes_any_m=True)
"""


def test_a_family_is_a_template_axes_and_a_module(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "run", tmp_path / "cache", sizes="- {M: 16, N: 64, K: 64}\n")
    shutil.copytree(ROOT / "templates", machine.folder / "templates")
    tile = (ROOT / "templates" / "gemm_tile.py.j2").read_text()
    assert "def gemm_tile(" in tile
    rows = re.sub(r"\bgemm_tile\b", "gemm_rows", tile)
    (machine.folder / "templates" / "gemm_rows.py.j2").write_text(rows)
    space = small_space(AXES)
    assert "  gemm_tile:" in space
    (machine.folder / "space.yaml").write_text(space.replace("  gemm_tile:", "  gemm_rows:"))
    (machine.folder / "gemm_rows_family.py").write_text(MODULE)
    about = machine.folder / "gemm_rows-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gemm-rows\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[gemm_tuner.gemm_families]\ngemm_rows = gemm_rows_family\n")
    machine.env["PYTHONPATH"] = str(machine.folder)
    done = machine.run("--arch", "sm_90", "--templates", "templates")
    assert done.status == 0, done.err
    (row,) = results.read(machine.run_folder() / "tuned.yaml").rows
    assert row.config is not None and row.config.family == "gemm_rows"
    assert row.verified is Verified.INTERPRETED
    # Its module says that the heuristics for tiles hold: one of them cuts the tile that is taller than C.
    (statuses,) = statuses_of(machine).values()
    assert len(statuses) == 1, statuses
