"""The example in TileLang: without it one line that says how to get it; with it kernels are built by workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fault_runs import ROOT

EXAMPLE = ROOT / "examples" / "kernels" / "tilelang_gemm.py"


def test_without_tilelang_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "tilelang.py").write_text("raise ModuleNotFoundError('No module', name='tilelang')\n")
    run = [sys.executable, "-c", f"import sys, runpy; sys.path[:0] = ['{tmp_path}']; runpy.run_path('{EXAMPLE}')"]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("tilelang is not installed") and "[tilelang]" in done.stderr


# The names that the example uses when it is imported; nothing of them is called.
STAND_IN = """
def jit(out_idx):
    return lambda function: function
"""


def test_without_a_gpu_it_says_that_it_needs_one(tmp_path: Path) -> None:
    (tmp_path / "tilelang").mkdir()
    (tmp_path / "tilelang" / "__init__.py").write_text(STAND_IN)
    (tmp_path / "tilelang" / "language.py").touch()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "CUDA_VISIBLE_DEVICES": ""}
    run = [sys.executable, str(EXAMPLE)]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "a GPU is needed" in done.stderr


BUILD = """
import sys
sys.path[:0] = [sys.argv[1]]
import tilelang_gemm
from gemm_tuner.surface import trials
from gemm_tuner.surface.configurations import Candidate
from gemm_tuner.surface.profile_args import CompileArgs, ProfileArgs
from gemm_tuner.surface.tunables import Arguments, Function
tilelang_gemm.matmul.fn.target = {"kind": "cuda", "arch": "sm_90a"}
function = Function(tilelang_gemm.matmul.fn, Arguments((256, 256, 256)), CompileArgs())
built = function.build(Candidate({"block_M": 128, "block_N": 128, "block_K": 32, "num_stages": 2, "threads": 128}))
print([(one.name, one.dtype, one.shape) for one in built.params], "wgmma" in built.kernel.get_kernel_source())
"""


def test_a_kernel_of_tilelang_is_compiled_without_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("tilelang")
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    run = [sys.executable, "-c", BUILD, str(EXAMPLE.parent)]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == ("[('A', 'float16', (256, 256)), ('B', 'float16', (256, 256))] True"), (
        done.stderr
    )
