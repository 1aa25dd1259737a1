"""A host function tuned on the GPU at hand: captured without it, compiled before, replayed under the profiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from gpu_work import ROOT

from gemm_tuner.core.records import Verified
from gemm_tuner.pipeline.run_end import COMPILED_LATE
from gemm_tuner.store import results

pytestmark = pytest.mark.gpu
SAMPLE = ROOT / "tests" / "hosts" / "host_sample.py"
SPECS = {
    ("tuned_copy", "copy"): {"cases": {"n": [64, 4000]}},  # triton.autotune with pruning, pre_hook and heuristics
    ("doubled", "three_launches"): {
        "cases": {"n": 5000},
        "params": {"BLOCK": [64, 1024], "SHIFT_BLOCK": [16, 1024], "num_warps": [1, 4]},
        "reference": f"{SAMPLE}:reference",
    },
}


@pytest.mark.parametrize(("kernel", "host"), SPECS)
def test_a_host_function_is_timed_and_right(tmp_path: Path, kernel: str, host: str) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPECS[kernel, host]))
    command = [sys.executable, str(ROOT / "tune_gemm.py"), "kernel", f"{SAMPLE}:{kernel}", "--host", f"{SAMPLE}:{host}"]
    command += ["--spec", "spec.yaml", "-o", "tuned.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert COMPILED_LATE not in done.stderr
    rows = results.read(tmp_path / "tuned.yaml").rows
    assert len(rows) == (2 if host == "copy" else 1) and all(row.facts["median_us"] > 0 for row in rows)
    wanted = Verified.TRUE if host == "three_launches" else Verified.AGREED
    assert {row.verified for row in rows} == {wanted}
