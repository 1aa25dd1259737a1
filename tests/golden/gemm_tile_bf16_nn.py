"""gemm_tile kernels for bf16_nn: 2 configurations. Generated; do not edit.

Time or check them by hand:  python THIS_FILE --plan plan.json   (--help shows a plan)
Importing this file opens no GPU and imports no torch.
"""

import sys

sys.path.append('')

import triton
import triton.language as tl


def symbol_name(specialisation):
    """The kernel's symbol: each configuration has its own, so that a trace can be joined by exact name."""
    return specialisation.constants["NAME"]


@triton.jit(repr=symbol_name, do_not_specialize=["M"])
def gemm_tile(
    # C[M, N] = A[M, K] @ B[K, N]; c_ptr is the fp32 workspace[SPLIT_K, M, N] when SPLIT_K > 1
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    # elements from one row (row-major) or column (column-major) to the next
    lda, ldb, ldc,
    NAME: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr, SPLIT_K: tl.constexpr,
    # EVEN_K: SPLIT_K * BLOCK_SIZE_K divides K, so that no load along K needs a mask
    # WIDE: a matrix has 2**31 elements or more, so that offsets need 64 bits
    # BY_8: every size that strides are made of is divisible by 8 and not all by 16, which Triton sees itself
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, BY_8: tl.constexpr,
):
    """One tile of C a program; the programs along axis 1 share out the blocks of K."""
    if BY_8:  # changes no value: it tells the compiler that rows start at multiples of 16 bytes
        N = N // 8 * 8
        K = K // 8 * 8
        lda = lda // 8 * 8
        ldb = ldb // 8 * 8
        ldc = ldc // 8 * 8
    pid = tl.program_id(0)
    pid_k = tl.program_id(1)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    if GROUP_SIZE_M == 1:
        pid_m = pid // num_pid_n
        pid_n = pid % num_pid_n
    else:
        num_pid_in_group = GROUP_SIZE_M * num_pid_n
        first_pid_m = (pid // num_pid_in_group) * GROUP_SIZE_M
        group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
        pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m
        pid_n = (pid % num_pid_in_group) // group_size_m

    # Rows and columns outside C wrap round: they are read, which is safe, and never stored.
    rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    columns = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    offs_m = rows % M
    offs_n = columns % N
    offs_k = pid_k * BLOCK_SIZE_K + tl.arange(0, BLOCK_SIZE_K)
    k_step = BLOCK_SIZE_K * SPLIT_K
    if WIDE:
        rows = rows.to(tl.int64)
        offs_m = offs_m.to(tl.int64)
        offs_n = offs_n.to(tl.int64)
        offs_k = offs_k.to(tl.int64)
        k_step = tl.full((), BLOCK_SIZE_K * SPLIT_K, tl.int64)
    a_ptrs = a_ptr + (offs_m[:, None] * lda + offs_k[None, :])
    b_ptrs = b_ptr + (offs_k[:, None] * ldb + offs_n[None, :])

    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for block in range(0, tl.cdiv(K, BLOCK_SIZE_K * SPLIT_K)):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            k_left = K - block * (BLOCK_SIZE_K * SPLIT_K)
            a = tl.load(a_ptrs, mask=offs_k[None, :] < k_left, other=0.0)
            b = tl.load(b_ptrs, mask=offs_k[:, None] < k_left, other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
        a_ptrs += k_step
        b_ptrs += k_step * ldb

    if SPLIT_K > 1:
        c_ptr += pid_k.to(tl.int64) * M * N
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * ldc + columns[None, :], accumulator.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit(repr=symbol_name)
def split_k_reduce(
    # workspace[SPLIT_K, numel] of fp32 partial sums, C[numel] row-major, numel = M * N
    workspace_ptr, c_ptr, N, numel,
    NAME: tl.constexpr, SPLIT_K: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = offsets < numel
    accumulator = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    slice_ptr = workspace_ptr
    for _ in tl.static_range(SPLIT_K):
        accumulator += tl.load(slice_ptr + offsets, mask=inside, other=0.0)
        slice_ptr += numel
    tl.store(c_ptr + offsets, accumulator.to(c_ptr.dtype.element_ty), mask=inside)


REDUCE_BLOCK_SIZE = 512


def workspace_elements(config, size):
    """fp32 elements of scratch memory that one call needs."""
    M, N, _ = size
    return config["SPLIT_K"] * M * N if config["SPLIT_K"] > 1 else 0


def calls(config, size, a, b, c, bias, workspace):
    """The launches of one GEMM in order, as (symbol, kernel, grid, positional, keyword)."""
    M, N, K = size
    split_k = config["SPLIT_K"]
    blocks = [config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"], config["BLOCK_SIZE_K"]]
    tiles = -(-M // blocks[0]) * -(-N // blocks[1])
    target = workspace if split_k > 1 else c
    even_k = K % (blocks[2] * split_k) == 0
    wide = max((M + 256) * (K + 256), (K + 256) * (N + 256), (M + 256) * (N + 256)) >= 2**31
    extents = (N, K)
    by_8 = all(e % 8 == 0 for e in extents) and not all(e % 16 == 0 for e in extents)
    lda, ldb, ldc = K, N, N
    positional = (a, b, target, M, N, K, lda, ldb, ldc, config["name"], *blocks)
    positional += (config["GROUP_SIZE_M"], split_k, even_k, wide, by_8)
    options = ('num_warps', 'num_stages')
    launches = [(config["name"], gemm_tile, (tiles, split_k), positional, {o: config[o] for o in options})]
    if split_k > 1:
        symbol = f"gemm_tile_reduce_SK{split_k}"
        positional = (workspace, c, N, M * N, symbol, split_k, REDUCE_BLOCK_SIZE)
        launches.append((symbol, split_k_reduce, (-(-M * N // REDUCE_BLOCK_SIZE),), positional, {}))
    return launches


FIELDS = ('name', 'family', 'BLOCK_SIZE_M', 'BLOCK_SIZE_N', 'BLOCK_SIZE_K', 'GROUP_SIZE_M', 'SPLIT_K', 'num_warps', 'num_stages', 'waves_per_eu', 'matrix_instr_nonkdim', 'kpack')
# fmt: off
CONFIGS = {row[0]: dict(zip(FIELDS, row)) for row in (
    ('gemm_tile_BM128_BN256_BK64_GM8_SK1_W8_S3', 'gemm_tile', 128, 256, 64, 8, 1, 8, 3, 0, 0, 0),
    ('gemm_tile_BM128_BN256_BK64_GM8_SK4_W8_S3', 'gemm_tile', 128, 256, 64, 8, 4, 8, 3, 0, 0, 0),
)}
# fmt: on
CLASS = {'m': 0, 'n': 0, 'k': 0, 'dtype_a': 'bf16', 'dtype_b': 'bf16', 'dtype_c': 'bf16', 'layout_a': 'row', 'layout_b': 'row', 'epilogue': 'none'}


if __name__ == "__main__":
    from gemm_tuner.launcher.main import main

    status = main()
    if status:  # a plain return lets a profiler inside the process (proton) write its report
        sys.exit(status)
