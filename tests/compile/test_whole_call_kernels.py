"""The kernels between the GEMMs of a whole MoE call, compiled for GPUs that are not here."""

from __future__ import annotations

import subprocess
import sys

from work import ROOT, space_of

TYPES = {"sm_90": "float8_e4m3fn", "gfx942": "float8_e4m3fnuz"}
# What is compiled for one GPU does not stay in the process for another: each has a fork of the one that imported torch.
COMPILE = """
import os
import sys
import torch
from gemm_tuner.core.records import Target
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.languages.triton.compile_call import StandInDriver, let_torch_in
from gemm_tuner.moe import whole_call_kernels as kernels
import triton
from triton.runtime.jit import MockTensor

def compile_all(backend, arch, warp_size, fp8):
    triton.runtime.driver.set_active(StandInDriver(Target(backend, arch, int(warp_size), None)))
    i32, bf16, fp32 = (MockTensor(one) for one in (torch.int32, torch.bfloat16, torch.float32))
    to = {"none": bf16, "made": MockTensor(getattr(torch, fp8)), "given": MockTensor(getattr(torch, fp8))}
    kernels.count_rows.warmup(i32, i32, 80, 1024, grid=(1,))
    kernels.lay_out.warmup(i32, i32, i32, i32, 256, 100, 16, 256, 32, grid=(1,))
    kernels.place_rows.warmup(i32, i32, i32, i32, 80, 1024, grid=(1,))
    kernels.add_up.warmup(bf16, bf16, 7168, 8, 1024, grid=(1,))
    for gate, kind, scaling in (("", "", "made"), ("halves", "silu", "made"), ("halves", "gelu", "none"),
                                ("pairs", "swigluoai", "given"), ("", "relu2", "none"), ("halves", "gelu_tanh", "none"),
                                ("halves", "swiglustep", "none")):
        scale = None if scaling == "none" else fp32
        kernels.activate.warmup(bf16, to[scaling], scale, 256, 2, gate, kind, scaling, 448.0, 128, grid=(1,))

for words in sys.argv[1:]:
    if os.fork() == 0:
        compile_all(*words.split())
        sys.exit(print("done", words.split()[1], flush=True))
    os.wait()
"""


def test_they_compile() -> None:
    targets = [(space_of(arch).device.target, fp8) for arch, fp8 in TYPES.items()]
    words = [f"{target.backend} {target.arch} {target.warp_size} {fp8}" for target, fp8 in targets]
    done = subprocess.run([sys.executable, "-c", COMPILE, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"done {arch}" for arch in TYPES], done.stderr[-2000:]
