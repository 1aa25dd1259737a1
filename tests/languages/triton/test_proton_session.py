"""Proton inside a process: without a GPU that is told apart from a fault of the calls that it would record."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from samples import ROOT

CODE = """
import sys
from pathlib import Path
from gemm_tuner.languages.triton import proton_session
assert "triton" not in sys.modules, "slow to import"
assert proton_session.is_there()
try:
    with proton_session.shadow_session(Path(sys.argv[1])):
        raise ValueError("a call")
except proton_session.SessionFault as fault:
    print(fault)
"""


def test_where_no_session_can_be_started_a_fault_says_why(tmp_path: Path) -> None:
    run = [sys.executable, "-c", CODE, str(tmp_path / "trace")]
    of_none = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(run, capture_output=True, text=True, env=of_none)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("proton: ")
