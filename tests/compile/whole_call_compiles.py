"""As a script: ``whole_call_compiles.py "BACKEND ARCH WARP_SIZE FP8 PART" ...`` compiles the kernels between the GEMMs
of a whole MoE call. PART: "0/2" the first of every two kernels, "0/1" all."""

from __future__ import annotations

import os
import sys
import traceback


def compile_part(backend: str, arch: str, warp_size: str, fp8: str, part: str) -> None:
    import torch
    import triton
    from triton.runtime.jit import MockTensor

    from gemm_tuner.core.records import Target
    from gemm_tuner.languages.triton.compile_call import StandInDriver
    from gemm_tuner.moe import sorting_kernels
    from gemm_tuner.moe import whole_call_kernels as kernels

    target = Target(backend, arch, int(warp_size), None)  # type: ignore[arg-type]
    triton.runtime.driver.set_active(StandInDriver(target))
    i32, bf16, fp32 = (MockTensor(one) for one in (torch.int32, torch.bfloat16, torch.float32))
    to = {"none": bf16, "made": MockTensor(getattr(torch, fp8)), "given": MockTensor(getattr(torch, fp8))}
    calls = [
        (kernels.count_rows, (i32, i32, 80, 1024)),
        (kernels.lay_out, (i32, i32, i32, i32, 257, 1, 256, 100, 16, 512, 32)),
        (kernels.place_rows, (i32, i32, i32, i32, 80, 1024)),
        (kernels.add_up, (bf16, bf16, 7168, 8, 1024)),
        (sorting_kernels.start_buckets, (i32, i32, 257, 512)),
        (sorting_kernels.sort_rows, (i32, i32, i32, fp32, i32, fp32, i32, 80, 8, 1024)),
        (sorting_kernels.add_up_places, (bf16, i32, i32, bf16, 7168, 8, 1024)),
    ]
    for gate, kind, scaling in (
        ("", "", "made"), ("halves", "silu", "made"), ("halves", "gelu", "none"), ("pairs", "swigluoai", "given"),
        ("", "relu2", "none"), ("halves", "gelu_tanh", "none"), ("halves", "swiglustep", "none"),
    ):  # fmt: skip
        scale = None if scaling == "none" else fp32
        places = i32 if kind == "silu" else None
        given = bf16, to[scaling], scale, places, 256, 2, 80, gate, kind, scaling, 448.0, 128
        calls.append((kernels.activate, given))
    first, step = map(int, part.split("/"))
    for kernel, arguments in calls[first::step]:
        kernel.warmup(*arguments, grid=(1,))


def main(targets: list[str]) -> None:
    """What is compiled for one GPU does not stay in the process for another: each has a fork of its own."""
    for words in targets:
        if (pid := os.fork()) == 0:
            status = 1
            try:
                compile_part(*words.split())
                print("done", words.split()[1], flush=True)
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
