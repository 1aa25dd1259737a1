"""An architecture is one file, ``rules/space_<arch>.yaml``: no code lists architectures."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from command import tune_gemm
from fault_runs import ROOT


def test_an_architecture_is_one_file(tmp_path: Path) -> None:
    """sm_87 has no file here: a relative's serves it until there is one. Its own has fewer configurations."""
    rules = shutil.copytree(ROOT / "rules", tmp_path / "rules", ignore=shutil.ignore_patterns("__pycache__"))
    told, count = previewed(rules, tmp_path)
    assert "sm_87 is not known" in told
    relative = (rules / "space_sm_86.yaml").read_text()
    (rules / "space_sm_87.yaml").write_text(re.sub(r"num_warps: \[[^]]*\]", "num_warps: [4]", relative))
    told, own = previewed(rules, tmp_path)
    assert "not known" not in told and 0 < own < count


def previewed(rules: Path, folder: Path) -> tuple[str, int]:
    """What a preview says, and how many configurations it would try."""
    words = f"-m 64 -n 64 -k 64 --arch sm_87 --families gemm_tile --rules {rules} --dry_run".split()
    done = tune_gemm(folder, *words)
    assert done.returncode == 0, done.stderr
    found = re.search(r"configurations to try: (\d+)", done.stdout)
    assert found, done.stdout
    return done.stdout + done.stderr, int(found[1])
