"""gemm_tile kernels for fp16_tn_bias: 1 configurations. Generated; do not edit.

Time or check them by hand:  python THIS_FILE --plan plan.json   (--help shows a plan)
That needs gemm_tuner: installed, on PYTHONPATH, or in the folder that holds generated/.
Importing this file opens no GPU and imports neither torch nor gemm_tuner.
"""

import triton
import triton.language as tl


def symbol_name(specialisation):
    """The kernel's symbol: each binary has its own, so that a trace can be joined by exact name."""
    return specialisation.constants["NAME"]


EARLY = False
FOLLOWING = {}

@triton.jit
def finished(accumulator, bias_ptr, rows, columns, M, N):
    """C[M, N] = A[M, K] @ B[K, N] + bias[N], from the sums of products; rows and columns broadcast to their shape."""
    value = accumulator.to(tl.float32)
    value += tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
    accumulator = value
    return accumulator

@triton.jit(repr=symbol_name, do_not_specialize=["GROUP_SIZE_M"])
def gemm_tile(
    # C[M, N] = A[M, K] @ B[K, N] + bias[N]; c_ptr is the partial sums [SPLIT_K, M, N] when SPLIT_K > 1
    a_ptr, b_ptr, c_ptr, bias_ptr, 
    M, N, K, GROUP_SIZE_M,
    # elements from one row (row-major) or column (column-major) to the next
    lda, ldb, ldc,
    NAME: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    SPLIT_K: tl.constexpr, NUM_XCDS: tl.constexpr, STREAM_B: tl.constexpr,
    # EVEN_K: SPLIT_K * BLOCK_SIZE_K divides K, so that no load along K needs a mask
    # WIDE: a matrix has 2**31 elements or more, so that offsets need 64 bits
    # BY_8: every size that strides are made of is divisible by 8 and not all by 16, which Triton sees itself
    # EARLY: the launch that adds the slices up may start before this one ends
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, BY_8: tl.constexpr, EARLY: tl.constexpr,
):
    """One tile of C a program; the programs along axis 1 share out the blocks of K."""

    if BY_8:
        M = M // 8 * 8
        N = N // 8 * 8
        K = K // 8 * 8
        lda = lda // 8 * 8
        ldb = ldb // 8 * 8
        ldc = ldc // 8 * 8
    pid = tl.program_id(0)
    pid_k = tl.program_id(1)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    if NUM_XCDS > 1:
        chiplet = pid % NUM_XCDS
        share = (num_pid_m * num_pid_n) // NUM_XCDS
        pid = chiplet * share + min(chiplet, (num_pid_m * num_pid_n) % NUM_XCDS) + pid // NUM_XCDS
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    first_pid_m = (pid // num_pid_in_group) * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m
    pid_n = (pid % num_pid_in_group) // group_size_m
    # Rows and columns outside C wrap round: they are read, which is safe, and never stored.
    # Triton does not see that the others follow one another where a side is odd, and would spread threads over K.
    offs_m = tl.max_contiguous((pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M, BLOCK_SIZE_M)
    offs_n = tl.max_contiguous((pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N, BLOCK_SIZE_N)
    offs_k = pid_k * BLOCK_SIZE_K + tl.arange(0, BLOCK_SIZE_K)
    k_step = BLOCK_SIZE_K * SPLIT_K
    if WIDE:
        offs_m = offs_m.to(tl.int64)
        offs_n = offs_n.to(tl.int64)
        offs_k = offs_k.to(tl.int64)
        k_step = tl.full((), BLOCK_SIZE_K * SPLIT_K, tl.int64)
    a_ptrs = a_ptr + (offs_m[:, None] + offs_k[None, :] * lda)
    b_ptrs = b_ptr + (offs_k[:, None] * ldb + offs_n[None, :])
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)

    for block in range(0, tl.cdiv(K, BLOCK_SIZE_K * SPLIT_K)):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs, cache_modifier=".cg" if STREAM_B else "")
        else:
            k_left = K - block * (BLOCK_SIZE_K * SPLIT_K)
            a = tl.load(a_ptrs, mask=offs_k[None, :] < k_left, other=0.0)
            b = tl.load(b_ptrs, mask=offs_k[:, None] < k_left, other=0.0, cache_modifier=".cg" if STREAM_B else "")
        a_ptrs += k_step * lda
        b_ptrs += k_step * ldb
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")


    if SPLIT_K == 1:
        part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
        part_columns = pid_n * BLOCK_SIZE_N + 0 + tl.arange(0, BLOCK_SIZE_N)[None, :]
        inside = (part_rows < M) & (part_columns < N)
        part_rows = part_rows.to(tl.int64) if WIDE else part_rows
        part = finished(accumulator, bias_ptr, part_rows, part_columns, M, N)
        tl.store(c_ptr + part_rows * ldc + part_columns, part.to(c_ptr.dtype.element_ty), mask=inside)

    else:
        rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
        columns = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)[None, :]
        inside = (rows < M) & (columns < N)
        rows = rows.to(tl.int64) if WIDE else rows
        c_ptr += pid_k.to(tl.int64) * M * N
        tl.store(c_ptr + rows * ldc + columns, accumulator, mask=inside)


@triton.jit(repr=symbol_name, do_not_specialize=["M"])
def split_k_reduce(
    # partial sums [SPLIT_K, numel], C[numel] row-major, numel = M * N
    partial_ptr, c_ptr, bias_ptr, M, N, numel,
    NAME: tl.constexpr, SPLIT_K: tl.constexpr, BLOCK_SIZE: tl.constexpr, EARLY: tl.constexpr,
):

    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = offsets < numel
    accumulator = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    slice_ptr = partial_ptr
    for _ in tl.static_range(SPLIT_K):
        accumulator += tl.load(slice_ptr + offsets, mask=inside, other=0)
        slice_ptr += numel
    rows = offsets // N
    value = finished(accumulator, bias_ptr, rows, offsets % N, M, N)
    tl.store(c_ptr + offsets, value.to(c_ptr.dtype.element_ty), mask=inside)


REDUCE_BLOCK_SIZE = 512


def reduce_call(config, size, operands, scratch):
    """The launch that adds the slices up."""
    M, N, _, batch = size
    split_k, numel = config["SPLIT_K"], M * N * batch
    symbol = f"split_k_reduce_SK{split_k}"
    positional = (scratch.partial_sums, operands.c, operands.bias, M, N, numel)
    positional += (symbol, split_k, REDUCE_BLOCK_SIZE, EARLY)
    return (symbol, split_k_reduce, (-(-numel // REDUCE_BLOCK_SIZE),), positional, FOLLOWING)

DESCRIPTORS = False


def scratch(config, size, num_sms):
    """(fp32 elements of partial sums, int32 locks) that one call needs."""
    M, N, _, batch = size
    return (config["SPLIT_K"] * batch * M * N if config["SPLIT_K"] > 1 else 0), 0


def calls(config, size, operands, scratch, num_sms):
    """The launches of one GEMM in order, as (symbol, kernel, grid, positional, keyword)."""
    M, N, K, batch = size
    split_k = config["SPLIT_K"]
    blocks = [config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"], config["BLOCK_SIZE_K"]]
    tiles = -(-M // blocks[0]) * -(-N // blocks[1])
    target = scratch.partial_sums if split_k > 1 else operands.c
    even_k = K % (blocks[2] * split_k) == 0
    wide = max((M + 256) * (K + 256), (K + 256) * (N + 256), (M + 256) * (N + 256)) >= 2**31
    extents = (M, N, K)
    by_8 = all(e % 8 == 0 for e in extents) and not all(e % 16 == 0 for e in extents)
    lda, ldb, ldc = M, N, N
    positional = (operands.a, operands.b, target, operands.bias, )
    positional += (M, N, K, config["GROUP_SIZE_M"], lda, ldb, ldc, config["binary"], *blocks)
    positional += (split_k, config["NUM_XCDS"], config["STREAM_B"], even_k, wide, by_8, EARLY and split_k > 1)
    options = ('num_warps', 'num_stages', 'waves_per_eu', 'matrix_instr_nonkdim', 'kpack')
    launches = [(config["binary"], gemm_tile, (tiles, split_k, batch), positional, {o: config[o] for o in options})]
    if split_k > 1:
        launches.append(reduce_call(config, size, operands, scratch))
    return launches


FIELDS = ('name', 'binary', 'family', 'BLOCK_SIZE_M', 'BLOCK_SIZE_N', 'BLOCK_SIZE_K', 'GROUP_SIZE_M', 'SPLIT_K', 'num_warps', 'num_stages', 'EPILOGUE_SUBTILE', 'PROGRAMS_PER_SM', 'WARP_SPECIALIZE', 'NUM_XCDS', 'STREAM_B', 'ROW_STEP', 'PACK_BLOCK', 'CLUSTER_M', 'CLUSTER_N', 'PINGPONG', 'SWAP_AB', 'waves_per_eu', 'matrix_instr_nonkdim', 'kpack')
# fmt: off
CONFIGS = {row[0]: dict(zip(FIELDS, row)) for row in (
    ('gemm_tile_BM128_BN256_BK64_GM8_SK1_W8_S2_EU2_MI16_KP2', 'gemm_tile_BM128_BN256_BK64_SK1_W8_S2_EU2_MI16_KP2', 'gemm_tile', 128, 256, 64, 8, 1, 8, 2, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 2, 16, 2),
)}
# fmt: on
CLASS = {'kind': 'gemm', 'm': 0, 'n': 0, 'k': 0, 'dtype_a': 'fp16', 'dtype_b': 'fp16', 'dtype_c': 'fp16', 'layout_a': 'col', 'layout_b': 'row', 'batch': 1, 'bias': True, 'activation': 'none', 'alpha': 1.0, 'beta': 0.0, 'scaling': 'none', 'precision': 'ieee'}


if __name__ == "__main__":
    import os
    import sys

    # From generated/RUN/ to a checkout around it; what is installed comes first. This text is the same on all machines.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.join(here, os.pardir, os.pardir))
    try:
        from gemm_tuner.launch.main import main
    except ModuleNotFoundError as error:
        if error.name != "gemm_tuner":
            raise
        print("error: gemm_tuner is not found: install it, or name the folder that holds it in PYTHONPATH", file=sys.stderr)
        sys.exit(3)

    status = main(scripts_dir=here)  # where the other scripts of a plan lie
    if status:  # a plain return lets a profiler inside the process (proton) write its report
        sys.exit(status)
