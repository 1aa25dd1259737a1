"""The kernels between the GEMMs of a whole MoE call, compiled for GPUs that are not here."""

from __future__ import annotations

import subprocess
import sys

import pytest
from work import ROOT, space_of

COMPILE = """
import sys
import torch
from gemm_tuner.core.records import Target
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.languages.triton.compile_call import StandInDriver, let_torch_in
from gemm_tuner.moe import whole_call_kernels as kernels
import triton
from triton.runtime.jit import MockTensor
backend, arch, warp_size, fp8 = sys.argv[1:]
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
print("done")
"""


@pytest.mark.parametrize(("arch", "fp8"), [("sm_90", "float8_e4m3fn"), ("gfx942", "float8_e4m3fnuz")])
def test_they_compile(arch: str, fp8: str) -> None:
    target = space_of(arch).device.target
    words = [sys.executable, "-c", COMPILE, target.backend, arch, str(target.warp_size), fp8]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr[-2000:]
