"""C = A @ B in TileLang, tuned by gt.autotune:  python examples/kernels/tilelang_gemm.py [M N K] [--theirs]

Needs a GPU, the tuner and TileLang:  pip install '.[tilelang]'  in the tuner's repository.
With --theirs, TileLang's own tuner chooses among the same configurations, and its choice is timed beside ours.
"""

import collections
import itertools
import sys

try:
    import tilelang
    import tilelang.language as T
    import torch
except ImportError as error:
    sys.exit(f"{error.name} is not installed: pip install '.[tilelang]' in the tuner's repository")

import gemm_tuner as gt

BLOCKS, DEPTHS, STAGES, THREADS = (64, 128, 256), (32, 64), (2, 3, 4), (128, 256)
SHARED_BYTES = 227 * 1024
MOST_ACCUMULATORS = 256


def space(m, n, k):
    """Tiles whose operands fit in shared memory and whose sums fit in registers. Yields 65."""
    for rows, columns, depth, stages, threads in itertools.product(BLOCKS, BLOCKS, DEPTHS, STAGES, THREADS):
        shared = 2 * (rows + columns) * depth * stages
        accumulators = rows * columns // threads
        if shared <= SHARED_BYTES and 64 <= accumulators <= MOST_ACCUMULATORS and rows * columns >= 128 * 128:
            yield {"block_M": rows, "block_N": columns, "block_K": depth, "num_stages": stages, "threads": threads}


@gt.autotune(configs=space, ref_prog=lambda a, b: a.float() @ b.float())
@tilelang.jit(out_idx=[-1])
def matmul(m, n, k, block_M=128, block_N=128, block_K=32, num_stages=3, threads=128):
    """A kernel for one size; each block of threads computes a tile of C."""

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, block_N), T.ceildiv(m, block_M), threads=threads) as (column, row):
            a_tile = T.alloc_shared((block_M, block_K), "float16")
            b_tile = T.alloc_shared((block_K, block_N), "float16")
            sums = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(sums)
            for step in T.Pipelined(T.ceildiv(k, block_K), num_stages=num_stages):
                T.copy(A[row * block_M, step * block_K], a_tile)
                T.copy(B[step * block_K, column * block_N], b_tile)
                T.gemm(a_tile, b_tile, sums)
            T.copy(sums, C[row * block_M, column * block_N])

    return kernel


def choice_of_tilelang(m, n, k):
    """The kernel that TileLang's own tuner chooses, and its configuration."""
    kernel = tilelang.autotune(configs=list(space(m, n, k)))(matmul.fn)(m, n, k)
    return kernel, kernel.config


def main(m=4096, n=4096, k=4096, theirs=False):
    kernel = matmul(m, n, k)
    (result,) = matmul.results.values()
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    torch.testing.assert_close(kernel(a, b), a @ b, rtol=1e-2, atol=1e-1)
    functions, config = {"tuned": kernel, "torch.mm": torch.mm}, None
    if theirs:
        functions["TileLang's choice"], config = choice_of_tilelang(m, n, k)
    timed = gt.benchmark(functions, [a, b], atol=0.1)
    us = {row.name: row.us for row in timed.rows}
    counts = dict(collections.Counter(row["status"] for row in result.table))
    against = f"torch.mm / tuned {us['torch.mm'] / us['tuned']:.3f}, configurations by status {counts}"
    times = ", ".join(f"{name} {us[name]:.2f} us" for name in functions) + (f" {config}" if config else "")
    print(f"{m}x{n}x{k} fp16 {matmul.best_config}: {times}; {against}")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("a GPU is needed: kernels are timed, and their results are checked, on it")
    main(*map(int, filter(str.isdigit, sys.argv[1:])), theirs="--theirs" in sys.argv)
