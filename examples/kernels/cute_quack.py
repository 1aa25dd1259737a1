"""A GEMM for Hopper of quack-kernels (Apache-2.0), in CuTe DSL; cute_quack.yaml has its space.

C = A @ B^T: A (M, K), B (N, K) and C (M, N) are row-major bf16, and K and N multiples of 8.
"""

import torch
from cutlass import BFloat16, Float32, Int32, cute
from quack.compile_utils import make_fake_tensor
from quack.gemm_config import SplitKMode
from quack.gemm_default_epi import GemmDefaultSm90
from quack.rounding import RoundingMode
from quack.tile_scheduler import RasterOrderOption, TileSchedulerOptions


def build(tile, cluster, pingpong):
    """A function of (a, b, c, clusters in flight, tiles of a group that share L2), for all sizes."""
    gemm = GemmDefaultSm90(
        Float32, BFloat16, (*tile, 64), (*cluster, 1), pingpong=pingpong, is_persistent=True, use_pdl=False,
        split_k=1, split_k_mode=SplitKMode.SERIAL,
    )  # fmt: skip

    @cute.jit
    def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, clusters: Int32, group: Int32, stream):
        epilogue = GemmDefaultSm90.EpilogueArguments(add_to_output=False, rounding_mode=RoundingMode.RN)
        tiles = TileSchedulerOptions(clusters, RasterOrderOption.Heuristic, group)
        gemm(a, b, c, None, epilogue, tiles, None, stream, None, None)

    m, n, k = cute.sym_int(), cute.sym_int(), cute.sym_int()
    a, b, c = (make_fake_tensor(BFloat16, shape, leading_dim=1, divisibility=8) for shape in ((m, k), (n, k), (m, n)))
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    return launch, (a, b, c, Int32(1), Int32(8), stream), type(gemm).kernel


def reference(a, b, dtype):
    return torch.mm(a.to(dtype), b.to(dtype).t())
