"""Compiles one small GEMM of the library, for the process that workers are forked from.

The DSL rewrites the text of each function of the library when it is first called, which takes half a second of a core
in each process that compiles. Forks of a process that has compiled a kernel have the rewritten functions.
"""

from typing import Any

from cutlass import BFloat16, Float32, Int32, cute
from quack import gemm_default_epi
from quack.gemm_config import SplitKMode
from quack.gemm_tvm_ffi_utils import make_fake_gemm_tensors
from quack.rounding import RoundingMode
from quack.tile_scheduler import RasterOrderOption, TileSchedulerOptions

# Legal on all architectures of the family gemm_cute.
TILE, CLUSTER = (128, 64, 64), (1, 1, 1)


def warm_up(arch: str) -> Any:
    """Compiles a bf16 GEMM for an architecture such as sm_90, and returns what the DSL returns."""
    of_hopper = arch == "sm_90"
    kind = gemm_default_epi.GemmDefaultSm90 if of_hopper else gemm_default_epi.GemmDefaultSm100
    chosen = {"pingpong": False, "is_persistent": True} if of_hopper else {}
    gemm = kind(Float32, BFloat16, TILE, CLUSTER, use_pdl=False, split_k=1, split_k_mode=SplitKMode.SERIAL, **chosen)
    a, b, d, *_ = make_fake_gemm_tensors(BFloat16, BFloat16, BFloat16, None, "k", "k", "n", None, batched=False)

    @cute.jit  # type: ignore[untyped-decorator]
    def launch(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, clusters: Int32, group: Int32, stream) -> None:  # type: ignore[no-untyped-def]
        epilogue = kind.EpilogueArguments(add_to_output=False, rounding_mode=RoundingMode.RN)
        order = TileSchedulerOptions(clusters, RasterOrderOption.Heuristic, group)
        gemm(a, b, d, None, epilogue, order, None, stream, None, None)

    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    given = (a, b, d, Int32(1), Int32(1), stream)
    return cute.compile(launch, *given, options="--enable-tvm-ffi", no_jit_engine=True)
