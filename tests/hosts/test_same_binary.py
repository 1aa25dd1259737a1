"""What is compiled without a GPU is what a launch of real tensors looks up: the same entry of Triton's cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("arch", [pytest.param("sm_90", marks=pytest.mark.grid), "gfx942"])
def test_real_tensors_find_what_was_captured_without_memory(tmp_path: Path, arch: str) -> None:
    """AMD's is the one where the extent of storages counts."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(Path(__file__).with_name("same_binary.py")), arch]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    meta, real = (json.loads(done.stdout)[:3], json.loads(done.stdout)[3:])
    assert meta == [["meta", True, False], ["meta", True, False], ["meta", True, True]]  # shifted is launched twice
    assert real == [["cpu", True, True]] * 3
