"""Tunes the GEMMs of NVIDIA's CuTe DSL examples, as their guide for auto-tuning does by hand.

The kernels are in https://github.com/NVIDIA/cutlass at 7107b05535f8977f5ecb9d01ee203205b1fd9bc4, below
examples/python/CuTeDSL/cute/, and you name the file:

  hopper/kernel/dense_gemm/dense_gemm_persistent.py     for sm_90
  blackwell/kernel/dense_gemm/dense_gemm_persistent.py  for sm_100, sm_103

  pip install '.[cute]'        # in the tuner's repository
  python cute_gemm.py --kernel_from dense_gemm_persistent.py --size 4096 4096 4096      # on a Hopper GPU
  python cute_gemm.py --kernel_from dense_gemm_persistent.py --arch sm_100 --compile_only   # registers, no GPU
  python cute_gemm.py --kernel_from dense_gemm_persistent.py --compile_only --compiled hopper.json
  python cute_gemm.py --compiled hopper.json        # on a GPU without the DSL: apache-tvm-ffi and its runtime library

C = A @ B in bf16: A is row-major, B column-major (--b_major k) or row-major (n).
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gemm_tuner as gt

HOPPER_SPACE = {
    "tile_shape_mn": [(64, 128), (64, 256), (128, 64), (128, 128), (128, 256)],
    "cluster_shape_mn": [(1, 1), (2, 1), (1, 2)],
    "raster_along_m": [True, False],
}
BLACKWELL_SPACE = {
    "mma_tiler_mn": [(64, 128), (128, 128), (128, 256), (256, 128), (256, 256)],
    "cluster_shape_mn": [(1, 1), (2, 1)],
    "use_2cta_instrs": [True, False],
    "use_tma_store": [True, False],
}
HOPPER_CLASS, BLACKWELL_CLASS = "HopperWgmmaGemmPersistentKernel", "PersistentDenseGemmKernel"
SMS = {"sm_90": 132, "sm_100": 148, "sm_103": 148}


# What runs in the processes that compile: with the DSL, without a GPU.


def module_of(path: str) -> Any:
    """NVIDIA's file as a module."""
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location("dense_gemm_of_nvidia", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def operands(b_major: str) -> tuple[Any, Any, Any]:
    """Stand-ins for A (M, K, 1), B (N, K, 1), C (M, N, 1) of any sizes; contiguous extents are multiples of 8."""
    from cutlass import BFloat16, cute
    from cutlass.cute.runtime import make_fake_compact_tensor

    def tensor(contiguous: int) -> Any:
        shape = [cute.sym_int(), cute.sym_int()]
        shape[contiguous] = cute.sym_int(divisibility=8)
        order = (0, 1, 2) if contiguous == 0 else (1, 0, 2)
        return make_fake_compact_tensor(BFloat16, (*shape, 1), stride_order=order, assumed_align=16)

    return tensor(1), tensor(1 if b_major == "k" else 0), tensor(1)


def hopper(
    kernel_from: str,
    sha: str,
    b_major: str,
    tile_shape_mn: tuple[int, int],
    cluster_shape_mn: tuple[int, int],
    raster_along_m: bool,
    max_active_clusters: int,
) -> tuple[Any, tuple[Any, ...], Any]:
    from cutlass import Float32
    from cutlass.cute.runtime import make_fake_stream

    kind = getattr(module_of(kernel_from), HOPPER_CLASS)
    gemm = kind(Float32, tile_shape_mn, cluster_shape_mn, 1, raster_along_m)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return gemm, (*operands(b_major), max_active_clusters, stream), kind.kernel


def blackwell(
    kernel_from: str,
    sha: str,
    b_major: str,
    mma_tiler_mn: tuple[int, int],
    cluster_shape_mn: tuple[int, int],
    use_2cta_instrs: bool,
    use_tma_store: bool,
    max_active_clusters: int,
) -> tuple[Any, tuple[Any, ...], Any]:
    from cutlass import Float32
    from cutlass.cute.runtime import make_fake_stream

    kind = getattr(module_of(kernel_from), BLACKWELL_CLASS)
    gemm = kind(Float32, use_2cta_instrs, mma_tiler_mn, cluster_shape_mn, use_tma_store)
    gemm.check_mma_tiler_and_cluster_shape()
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return gemm, (*operands(b_major), max_active_clusters, stream), kind.kernel


# What runs here.


def check_file(path: Path, arch: str) -> str:
    """Why the file holds no kernel for the architecture, and which of NVIDIA's does; "" if it holds one."""
    generation, kind = ("hopper", HOPPER_CLASS) if arch == "sm_90" else ("blackwell", BLACKWELL_CLASS)
    if f"class {kind}" in path.read_text(encoding="utf-8", errors="replace"):
        return ""
    return f"{path} has no {kind}: for {arch} NVIDIA's file is {generation}/kernel/dense_gemm/dense_gemm_persistent.py"


def max_active_clusters(cluster_shape_mn: tuple[int, int], num_sms: int) -> int:
    """Clusters that run at once. Groups of SMs hold no whole number of larger clusters: 32 of four on 132 SMs."""
    size = cluster_shape_mn[0] * cluster_shape_mn[1]
    return num_sms // size if size <= 2 else (num_sms - size) // size


def compile_ahead(given: argparse.Namespace) -> list[gt.Compiled]:
    """The whole space, in processes of their own: one that ends its compiler costs itself."""
    path = Path(given.kernel_from).resolve()
    builder, space = (hopper, HOPPER_SPACE) if given.arch == "sm_90" else (blackwell, BLACKWELL_SPACE)
    configs = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    for config in configs:
        config["max_active_clusters"] = max_active_clusters(config["cluster_shape_mn"], SMS[given.arch])
    args = {"kernel_from": str(path), "sha": hashlib.sha256(path.read_bytes()).hexdigest(), "b_major": given.b_major}
    return gt.par_compile(builder, configs, args, given.arch, given.workers, language="cute", limit_s=300)


def autotune_gemm(compiled: list[gt.Compiled], output_dir: str | None = "results") -> gt.Callables:
    """A function of (a, b, c), each as NVIDIA's kernel takes them, that finds the best kernel for each shape once."""
    by_config = {repr(one.config): one for one in compiled if one.artifact is not None}
    return gt.callables(
        lambda config: gt.load_compiled(by_config[repr(config)]),
        [one.config for one in by_config.values()],
        reference=lambda a, b, c: (a[..., 0].float() @ b[..., 0].float().t())[..., None],
        outputs=lambda a, b, c: (c,),
        rtol=1e-2,
        atol=0.5,
        name="cute_gemm",
        output_dir=output_dir,
    )


def tune(compiled: list[gt.Compiled], size: tuple[int, int, int], b_major: str, output_dir: str) -> None:
    import torch

    m, n, k = size
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(*((n, k) if b_major == "k" else (k, n)), device="cuda", dtype=torch.bfloat16)
    b = b if b_major == "k" else b.t()
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(c)
    gemm = autotune_gemm(compiled, output_dir)
    # One more mode, of extent 1: the batch.
    of_dsl = tuple(one.as_strided((*one.shape, 1), (*one.stride(), one.numel())) for one in (a, b, c))
    tuned = gemm.tune(*of_dsl)
    print(f"{'us':>9}  {'status':18} configuration")
    for row in tuned.rows:
        print(f"{row.us or float('nan'):9.2f}  {row.status.value:18} {row.name}  {row.reason[:60]}")
    both = gt.benchmark({"cute": lambda: gemm(*of_dsl), "torch.mm": lambda: torch.mm(a, b.t(), out=out)})
    times = {row.name: row.us for row in both.rows}
    against = (
        f"tuned {times['cute']:.2f} us, torch.mm {times['torch.mm']:.2f} us: {times['torch.mm'] / times['cute']:.3f}"
    )
    facts = f"verified {tuned.winner.verified.value}, clock {tuned.clock}"
    print(f"{m}x{n}x{k} bf16 B {b_major} {tuned.config}: {against}; {facts}")


def show(compiled: list[gt.Compiled]) -> None:
    print(f"{'registers':>9} {'spills':>6} {'shared':>7} {'seconds':>7}  {'status':16} configuration")
    for one in compiled:
        values = " ".join(f"{name}={value}" for name, value in one.config.items()).replace(" (", "(")
        numbers = f"{one.registers:9} {one.spills:6} {one.shared_bytes:7} {one.seconds:7.1f}"
        print(f"{numbers}  {one.status.value:16} {values}  {one.reason[:80]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel_from", help="NVIDIA's file")
    parser.add_argument("--arch", default="sm_90", choices=sorted(SMS))
    parser.add_argument("--b_major", default="k", choices=["k", "n"])
    parser.add_argument("--size", type=int, nargs=3, default=(4096, 4096, 4096), metavar=("M", "N", "K"))
    parser.add_argument("--compile_only", action="store_true", help="show registers, spills, shared memory in bytes")
    parser.add_argument("--compiled", help="where the kernels are kept: read without --kernel_from, else written")
    parser.add_argument("--workers", type=int, default=4, help="processes that compile")
    parser.add_argument("--output_dir", default="results", help="where the log and the table of the run go")
    given = parser.parse_args()
    if given.kernel_from and not Path(given.kernel_from).is_file():
        parser.error(f"--kernel_from: there is no file {given.kernel_from}; --help says where NVIDIA's is")
    if given.kernel_from and (wrong := check_file(Path(given.kernel_from), given.arch)):
        parser.error(f"--kernel_from: {wrong}")
    if given.kernel_from and find_spec("cutlass") is None:
        parser.error("CuTe DSL is not installed: pip install '.[cute]' in the tuner's repository")
    if given.kernel_from:
        compiled = compile_ahead(given)
        if given.compiled:
            gt.save_compiled(compiled, given.compiled)
    elif given.compiled:
        compiled = gt.read_compiled(given.compiled)
    else:
        parser.error("--kernel_from FILE, or --compiled FILE of kernels that have been compiled")
    if given.compile_only:
        show(compiled)
    else:
        tune(compiled, given.size, given.b_major, given.output_dir)
    return 0 if any(one.artifact for one in compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
