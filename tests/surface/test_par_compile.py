"""gt.par_compile: configurations of a Triton kernel in parallel processes, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from samples import ROOT
from scale_kernel import scale

import gemm_tuner as gt
from gemm_tuner.core.errors import UserError

SCRIPT = """
import json, sys
import numpy as np
import triton
import triton.language as tl
import gemm_tuner as gt

print("started")

@triton.jit
def scale(x, out, factor, n, BLOCK: tl.constexpr, TWICE: tl.constexpr = False):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * factor
    tl.store(out + at, value + value if TWICE else value, mask=at < n)

x = np.empty(4096, np.float32)
configs = [{"BLOCK": 1024, "num_warps": 1}, {"BLOCK": 100}, {"BLOCK": 1024, "num_warps": 8}]
for target in ("sm_90", "gfx942"):
    found = gt.par_compile(scale, configs, args=(x, x, 0.5, 4096), target=target, num_workers=2)
    kinds = [type(one.binary).__name__ if one.artifact else one.reason[-60:] for one in found]
    rows = [(one.config, one.status.value, one.registers, one.spills, one.shared_bytes) for one in found]
    print(json.dumps([rows, kinds, len({one.binary_hash for one in found}), len(repr(found)), len(found[0].binary)]))
"""


def test_registers_and_code_without_a_gpu_from_a_script_that_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=True)
    started, *lines = done.stdout.splitlines()
    assert started == "started" and len(lines) == 2
    for line in lines:
        rows, kinds, hashes, shown_chars, code_bytes = json.loads(line)
        assert shown_chars < code_bytes, "what is printed holds no machine code"
        assert [(row[0], row[1]) for row in rows] == [
            ({"BLOCK": 1024, "num_warps": 1}, "ok"),
            ({"BLOCK": 100}, "compile_error"),
            ({"BLOCK": 1024, "num_warps": 8}, "ok"),
        ]
        one_warp, _, eight_warps = rows
        assert one_warp[2] > eight_warps[2] > 0 and one_warp[3] == one_warp[4] == 0
        assert kinds[0] == kinds[2] == "bytes" and "power of 2" in kinds[1] and hashes == 3


def test_what_cannot_be_compiled_is_said_before() -> None:
    x = np.empty(64, np.float16)
    config = {"BLOCK": 8}
    for match, arguments in {
        "No configurations to tune": ([], (x, x, 8, 4, 8)),
        "has no value for n": ([config], (x, x, 0.5)),
        "has no parameter 'factors'.*did you mean factor": ([config], {"out": x, "factors": 8}),
        "6 arguments are given for 5 parameters": ([config], (x, x, 0.5, 64, 1, 2)),
        "has the type complex64": ([config], (x.astype("complex64"), x, 0.5, 64)),
    }.items():
        with pytest.raises(UserError, match=match):
            gt.par_compile(scale, *arguments, target="sm_90")
    with pytest.raises(UserError, match="is no kernel of triton"):
        gt.par_compile(len, [config])
